"""What a Connect worker is started with."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headrace.capture.connect.jars import plugin_path
from headrace.client import Connection
from headrace.errors import ConfigError

__all__ = ["ConnectSettings", "log_properties", "worker_properties"]

_JSON = "org.apache.kafka.connect.json.JsonConverter"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectSettings:
    """Where the log is, and under which name the worker works there.

    `name` is the worker's group and the beginning of its topics' and transactional
    ids' names: two workers of one name share their connectors, which without REST
    they cannot do well, so give each its own. `properties` are Connect's own worker
    settings and win over those of `worker_properties`; they may hold secrets, and so
    are not shown. `secrets` become variables of the worker's process alone, for
    `${env:NAME}` in configurations of connectors. `kind` is that of the database which a worker
    for a single one reads.
    """

    bootstrap_servers: str
    name: str = "headrace-capture"
    kind: str = ""
    heap_mb: int = 512
    start_timeout_s: float = 90
    stop_timeout_s: float = 30
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not self.bootstrap_servers:
            raise ConfigError("bootstrap_servers is empty; give at least one host:port")
        if not self.name:
            raise ConfigError("a Connect worker needs a name; its group and topics are called by it")


def worker_properties(settings: ConnectSettings) -> dict[str, str]:
    """Connect's own settings: exactly-once, three topics of its own, quick to return after a crash."""
    name, plugins = settings.name, plugin_path(settings.kind)
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
        "config.providers": "env",
        "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
        "config.providers.env.param.allowlist.pattern": "HEADRACE_CONNECT_SECRET_.*",
        **({"plugin.path": str(plugins)} if plugins else {}),
        **topics,
        **replication,
        "offset.storage.partitions": "1",
        "status.storage.partitions": "1",
        **settings.properties,
    }


_TOPICS = {"offset": "offsets", "config": "configs", "status": "status"}


def log_properties(connection: Connection) -> dict[str, str]:
    """How a client in Java logs in to the log, and verifies it: the password included; raises ConfigError."""
    ours = connection.client_properties()
    found: dict[str, str] = {}
    found |= {key: ours[key] for key in ("security.protocol", "sasl.mechanism") if key in ours}
    if "sasl.username" in ours:
        found["sasl.jaas.config"] = _login(ours)
    if "ssl.ca.location" in ours:
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": ours["ssl.ca.location"]}
    if "ssl.certificate.location" in ours:
        found |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": Path(ours["ssl.certificate.location"]).read_text(),
            "ssl.keystore.key": _pkcs8(Path(ours["ssl.key.location"])),
        }
    return found


def _login(ours: Mapping[str, str]) -> str:
    module = "plain.Plain" if ours["sasl.mechanism"] == "PLAIN" else "scram.Scram"
    user, password = (_quoted(ours[each]) for each in ("sasl.username", "sasl.password"))
    return (
        f"org.apache.kafka.common.security.{module}LoginModule required username={user} password={password};"
    )


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _pkcs8(path: Path) -> str:
    """The private key in the one form that Java reads."""
    from cryptography.hazmat.primitives import serialization

    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(f"client_key {path} cannot be read: {error}") from None
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return str(key.private_bytes(encoding, form, serialization.NoEncryption()), "ascii")
