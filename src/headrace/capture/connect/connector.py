"""The configuration of a connector, from the declaration of its capture. Pure.

No secret is in it: Connect keeps configurations in a topic. Where one belongs stands `${env:…}`, and the
worker's process has it in its environment (`Secrets`).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.capture.connect.address import DebeziumAddress
from headrace.capture.connect.databases import SECRETS
from headrace.capture.postgres import own_name
from headrace.capture.spec import CaptureSpec
from headrace.capture.writer import topic_name
from headrace.client import LARGE_RECORD_CONFIGS
from headrace.client.topics import KEEP_ALL
from headrace.secret_references import resolve

__all__ = ["Secrets", "connector_config", "history_topic"]

_VARIABLE = "HEADRACE_CONNECT_SECRET_"


@dataclass(slots=True)
class Secrets:
    """Secrets of one worker by the names of variables of its process; `repr` does not show them."""

    values: dict[str, str] = field(default_factory=dict, repr=False)

    def placeholder(self, name: str, value: str) -> str:
        """What stands for the secret in a configuration."""
        variable = _VARIABLE + re.sub(r"[^A-Za-z0-9]", "_", name)
        self.values[variable] = value
        return f"${{env:{variable}}}"

    def hidden(self, text: str) -> str:
        """The text without any of the secrets."""
        for value in sorted(filter(None, self.values.values()), key=len, reverse=True):
            text = text.replace(value, "********")
        return text


def history_topic(name: str) -> str:
    """Where a connector keeps the statements that changed tables."""
    return topic_name(f"{name}.schema-history")


def connector_config(
    spec: CaptureSpec,
    address: DebeziumAddress,
    log: Mapping[str, str],
    secrets: Secrets,
    *,
    bootstrap_servers: str,
) -> dict[str, str]:
    """All that the connector is told; `log` are properties with which a Java client reaches the log.

    Raises ConfigError if a secret's reference leads nowhere.
    """
    database = address.database
    tables = [address.qualified(each) for each in spec.tables]
    return {
        "connector.class": database.connector,
        "tasks.max": "1",
        "topic.prefix": spec.name,
        "tombstones.on.delete": "true",
        **({"exactly.once.support": "required"} if database.is_once else {}),
        **_access(address, spec.name, secrets),
        **({database.tables: ",".join(map(_pattern, tables))} if tables else {}),
        **(_history(spec.name, log, bootstrap_servers) if database.has_history else {}),
        **_topics(spec, address),
        **_values(address.kind),
        **_routes(spec.name, address),
        **{
            name: secrets.placeholder(name, resolve(value, name)) if name in SECRETS else value
            for name, value in spec.settings.items()
        },
    }


def _access(address: DebeziumAddress, name: str, secrets: Secrets) -> dict[str, str]:
    password = secrets.placeholder("password", address.resolve_password()) if address.password else ""
    if address.kind == "mongodb":
        login = {"mongodb.user": address.user, "mongodb.password": password} if address.user else {}
        return {
            "mongodb.connection.string": address.connection_string,
            "database.include.list": _pattern(address.name),
            **login,
        }
    common = {
        "database.hostname": address.host,
        "database.port": address.port,
        "database.user": address.user,
        "database.password": password,
    }
    return {key: value for key, value in common.items() if value} | _named(address, name)


def _named(address: DebeziumAddress, name: str) -> dict[str, str]:
    """The database by its name, as each connector wants to be told."""
    if address.kind == "sqlserver":
        return {"database.names": address.name}
    if address.kind in ("mysql", "mariadb"):
        return {"database.include.list": _pattern(address.name), "database.server.id": str(_server_id(name))}
    if address.kind == "postgresql":
        own = own_name(name)  # as for our own reader, so that one removes what either has set up
        return {
            "database.dbname": address.name,
            "plugin.name": "pgoutput",
            "slot.name": own,
            "publication.name": own,
            "publication.autocreate.mode": "filtered",
        }
    return {"database.dbname": address.name}


def _server_id(name: str) -> int:
    """Unique among the replicas of a server, and the same after a restart."""
    number = 0
    for each in name.encode():
        number = (number * 31 + each) % 1_000_000_007
    return 1_000_000 + number


def _pattern(text: str) -> str:
    """A regular expression that fits this text only."""
    return re.sub(r"([^A-Za-z0-9_])", r"\\\1", text)


def _history(name: str, log: Mapping[str, str], bootstrap_servers: str) -> dict[str, str]:
    prefix = "schema.history.internal"
    clients = {
        f"{prefix}.{kind}.{key}": value for kind in ("producer", "consumer") for key, value in log.items()
    }
    return {
        prefix: "io.debezium.storage.kafka.history.KafkaSchemaHistory",
        f"{prefix}.kafka.bootstrap.servers": bootstrap_servers,
        f"{prefix}.kafka.topic": history_topic(name),
        f"{prefix}.store.only.captured.tables.ddl": "true",
        "include.schema.changes": "false",
        **clients,
    }


def _topics(spec: CaptureSpec, address: DebeziumAddress) -> dict[str, str]:
    """For topics that nobody has created, of tables that nobody has named. Documents always have keys."""
    policy = {"cleanup.policy": "compact"} if address.kind == "mongodb" else KEEP_ALL
    configs = {**policy, **LARGE_RECORD_CONFIGS}
    return {
        "topic.creation.default.replication.factor": "-1",
        "topic.creation.default.partitions": str(spec.partitions),
        **{f"topic.creation.default.{key}": value for key, value in configs.items()},
        "producer.override.max.request.size": LARGE_RECORD_CONFIGS["max.message.bytes"],
    }


def _values(kind: str) -> dict[str, str]:
    return {} if kind == "mongodb" else {"decimal.handling.mode": "string"}


def _routes(name: str, address: DebeziumAddress) -> dict[str, str]:
    """SQL Server's connector puts the database into the names of topics, of which a capture has one only."""
    if address.kind != "sqlserver":
        return {}
    prefix = _pattern(f"{name}.{topic_name(address.name)}.")
    return {
        "transforms": "route",
        "transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "transforms.route.regex": f"{prefix}(.*)",
        "transforms.route.replacement": f"{name}.$1",
    }
