"""What can be set of a broker."""

import dataclasses

from headrace.addresses import host_and_port, is_loopback
from headrace.config import setting
from headrace.errors import ConfigError

__all__ = ["BrokerSettings"]

MIB = 1024 * 1024


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """Settings of one broker; memory follows from these, not from what clients send."""

    data: str = setting("headrace-data", "Directory of the log; created if it does not exist.")
    listen: str = setting("127.0.0.1:9092", "Address and port to listen on; port 0 picks a free one.")
    advertise: str = setting(
        "", "Address and port that clients should connect to; empty: the address they used."
    )
    authenticate: bool = setting(
        False,
        "Clients must authenticate, by SASL or certificate, and may do only what ACLs allow.",
    )
    super_users: str = setting(
        "", "Users who may do everything, separated by semicolons: admin;CN=ops,O=Example."
    )
    tls_certificate: str = setting("", "PEM file of the server's certificate and its chain; turns TLS on.")
    tls_key: str = setting("", "PEM file of the certificate's private key, without a password.")
    tls_client_ca: str = setting(
        "", "PEM file of the authorities whose certificates identify clients; empty: certificates do not."
    )
    allow_unauthenticated: bool = setting(
        False,
        "Allow listening beyond loopback without authentication: anyone who can connect may do anything.",
    )
    until_stdin_closes: bool = setting(
        False,
        "Also stop cleanly when standard input closes, as it does when the parent process dies.",
    )
    node_id: int = setting(1, "This node's id in metadata responses.")
    auto_create_topics: bool = setting(
        True, "Create a missing topic when a client that allows it asks for it."
    )
    default_partitions: int = setting(1, "Partitions of a topic created without a count.")
    max_connections: int = setting(
        10_000, "Maximum number of connections; further ones are closed immediately."
    )
    max_request_bytes: int = setting(
        100 * MIB, "Largest request accepted; a larger one closes its connection."
    )
    max_control_bytes: int = setting(4 * MIB, "Largest request other than a produce request.")
    request_memory_bytes: int = setting(
        16 * MIB, "Memory for requests over 64 KiB being received or written; one at a time may exceed it."
    )
    max_decompressed_bytes: int = setting(
        64 * MIB, "Largest decompressed size of a record batch; a larger one is rejected."
    )
    check_records: bool = setting(
        False, "Check the records of every batch, as Kafka does; otherwise only on compacted topics."
    )
    produce_pipeline: int = setting(
        32, "Produce requests of one connection that may wait for their sync at the same time."
    )
    fetch_max_bytes: int = setting(
        8 * MIB,
        "Maximum bytes in one fetch response, unless the client insists on more (min_bytes).",
    )
    fetch_window_bytes: int = setting(
        512 * 1024,
        "Bytes of a fetch response held in memory per connection; the broker itself holds four times that.",
    )
    commit_threads: int = setting(4, "Threads that write and sync; a partition uses one at a time.")
    receive_timeout_ms: int = setting(30_000, "Time to receive the rest of a request after its first byte.")
    idle_timeout_ms: int = setting(600_000, "Connections without traffic for this long are closed.")
    producer_id_expiration_ms: int = setting(
        86_400_000, "Idempotent producers that sent nothing to a partition for this long are forgotten there."
    )
    upkeep_interval_ms: int = setting(10_000, "How often retention and compaction look for work.")
    compaction_map_bytes: int = setting(
        32 * MIB, "Memory for the keys of a compaction run, about a million; more keys take several runs."
    )
    compaction_read_bytes: int = setting(MIB, "Bytes that compaction reads ahead, or one batch.")
    quota_producer_bytes_per_s: int = setting(
        0, "Bytes per second that each client id may produce, unless it has its own quota; 0: no limit."
    )
    quota_consumer_bytes_per_s: int = setting(
        0, "Bytes per second that each client id may fetch, unless it has its own quota; 0: no limit."
    )
    lag_check_interval_ms: int = setting(
        5_000, "How often the lag of groups is checked, and whether retention is about to overtake them."
    )
    metrics_listen: str = setting(
        "", "Address and port of the HTTP endpoint for /metrics and /health; empty: none."
    )
    metrics_public: bool = setting(
        False, "Allow metrics_listen beyond loopback, although it has no authentication."
    )
    health_min_free_bytes: int = setting(100 * MIB, "With less free disk space, /health answers 503.")

    def __post_init__(self) -> None:
        counts = "default_partitions", "max_connections", "produce_pipeline", "commit_threads"
        for name in (*counts, "fetch_window_bytes"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be at least 1")
        host_and_port("listen", self.listen)
        if self.advertise:
            host_and_port("advertise", self.advertise)
        if self.metrics_listen:
            self._check_metrics_listen()
        self._check_access()

    def _check_access(self) -> None:
        host, _ = host_and_port("listen", self.listen)
        if not (self.authenticate or self.allow_unauthenticated or is_loopback(host)):
            raise ConfigError(
                f"listen={self.listen!r} is reachable from outside and nobody has to say who they are;"
                " set authenticate (--authenticate; see docs/guides/security.md), listen on 127.0.0.1,"
                " or give --allow-unauthenticated if everybody who can reach it may do everything"
            )
        if bool(self.tls_certificate) != bool(self.tls_key):
            missing = "tls_key" if self.tls_certificate else "tls_certificate"
            raise ConfigError(f"{missing} is missing; TLS needs both tls_certificate and tls_key")
        if self.tls_client_ca and not (self.tls_certificate and self.authenticate):
            raise ConfigError("tls_client_ca identifies clients: it needs tls_certificate and authenticate")

    def super_principals(self) -> frozenset[str]:
        """The super users as principals."""
        names = (name.strip().removeprefix("User:") for name in self.super_users.split(";"))
        return frozenset(f"User:{name}" for name in names if name)

    def _check_metrics_listen(self) -> None:
        host, _ = host_and_port("metrics_listen", self.metrics_listen)
        if not self.metrics_public and not is_loopback(host):
            raise ConfigError(
                f"metrics_listen={self.metrics_listen!r} is reachable from outside and asks for no password;"
                " use 127.0.0.1, or set metrics_public if the network is trusted"
            )
