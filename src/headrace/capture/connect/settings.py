"""What a Connect worker is started with."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.errors import ConfigError

__all__ = ["ConnectSettings", "worker_properties"]

_JSON = "org.apache.kafka.connect.json.JsonConverter"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectSettings:
    """Where the log is, and under which name the worker works there.

    `name` is the worker's group and the beginning of its topics' and transactional
    ids' names: two workers of one name share their connectors, which without REST
    they cannot do well, so give each its own. `properties` are Connect's own worker
    settings and win over those of `worker_properties`; they may hold secrets, and so
    are not shown.
    """

    bootstrap_servers: str
    name: str = "headrace-capture"
    heap_mb: int = 512
    start_timeout_s: float = 90
    stop_timeout_s: float = 30
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not self.bootstrap_servers:
            raise ConfigError("bootstrap_servers is empty; give at least one host:port")
        if not self.name:
            raise ConfigError("a Connect worker needs a name; its group and topics are called by it")


def worker_properties(settings: ConnectSettings) -> dict[str, str]:
    """Connect's own settings: exactly-once, three topics of its own, quick to return after a crash."""
    name = settings.name
    topics = {f"{kind}.storage.topic": f"{name}-{plural}" for kind, plural in _TOPICS.items()}
    replication = {f"{kind}.storage.replication.factor": "-1" for kind in _TOPICS}  # as the log has it
    return {
        "bootstrap.servers": settings.bootstrap_servers,
        "group.id": name,
        "client.id": name,
        "exactly.once.source.support": "enabled",
        "plugin.discovery": "service_load",
        "key.converter": _JSON,
        "value.converter": _JSON,
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
        # The predecessor of a worker that was killed must be noticed to be gone, as soon as
        # the default limits of ours and of Kafka allow; nobody else will take its tasks over.
        "session.timeout.ms": "6000",
        "heartbeat.interval.ms": "2000",
        "scheduled.rebalance.max.delay.ms": "0",
        **topics,
        **replication,
        "offset.storage.partitions": "1",
        "status.storage.partitions": "1",
        **settings.properties,
    }


_TOPICS = {"offset": "offsets", "config": "configs", "status": "status"}
