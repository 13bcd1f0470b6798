"""Where a log is, how to authenticate there, and how long to wait for it."""

import os
from dataclasses import dataclass

from headrace.client.connect.identity import Identity
from headrace.config import setting
from headrace.errors import ConfigError

__all__ = ["RACK_VARIABLE", "Connection", "parse_servers"]

RACK_VARIABLE = "HEADRACE_CLIENT_RACK"


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection(Identity):
    """The settings that all clients of a log share; for the password see `password_file`."""

    bootstrap_servers: str = setting(
        "127.0.0.1:9092", "Brokers to connect to first, as host:port, separated by commas."
    )
    client_id: str = setting("headrace", "The name by which the broker knows this client.")
    client_rack: str = setting(
        "",
        "Rack of this client, so that records may come from a nearby replica; empty: "
        f"{RACK_VARIABLE} of the process that reads.",
    )
    request_timeout_ms: int = setting(10_000, "How long to wait for the response to one request.")
    retry_timeout_ms: int = setting(
        30_000, "How long to retry when a broker cannot be reached or is not ready."
    )

    def rack(self) -> str:
        """Where this process is, by the setting or its environment; empty if nobody said."""
        return self.client_rack or os.environ.get(RACK_VARIABLE, "")

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
