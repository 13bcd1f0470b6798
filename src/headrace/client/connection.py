"""Where a log is, who one is there, and how patient to be with it."""

from dataclasses import dataclass

from headrace.client.identity import Identity
from headrace.config import setting
from headrace.errors import ConfigError

__all__ = ["Connection", "parse_servers"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection(Identity):
    """Settings every client of a log shares; a password is none of them, see `password_file`."""

    bootstrap_servers: str = setting(
        "127.0.0.1:9092", "Brokers to ask first, as host:port, separated by commas."
    )
    client_id: str = setting("headrace", "The name under which the broker sees this client.")
    request_timeout_ms: int = setting(10_000, "How long to wait for the answer to one request.")
    retry_timeout_ms: int = setting(
        30_000, "How long to go on trying when a broker cannot be reached or answers that it is not ready."
    )

    def servers(self) -> list[tuple[str, int]]:
        """The bootstrap servers as pairs of host and port; raises ConfigError."""
        return parse_servers(self.bootstrap_servers)


def parse_servers(text: str) -> list[tuple[str, int]]:
    """Hosts and ports from "host:port,[::1]:port"; raises ConfigError naming the bad part."""
    servers = [_parse_server(part.strip()) for part in text.split(",") if part.strip()]
    if not servers:
        raise ConfigError("bootstrap_servers is empty; give at least one host:port")
    return servers


def _parse_server(part: str) -> tuple[str, int]:
    host, colon, port = part.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigError(f"bootstrap_servers: {part!r} is not host:port, such as 127.0.0.1:9092")
    return host.removeprefix("[").removesuffix("]"), int(port)
