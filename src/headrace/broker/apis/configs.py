"""Configurations of topics and queues (which can be changed) and of the broker (which can be read)."""

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.config import describe
from headrace.errors import HeadraceError, RequestError
from headrace.groups.share import GROUP_CONFIGS, check_overrides
from headrace.storage import Topic, TopicConfig, check_topic_name
from headrace.storage.topic_config import SETTINGS
from headrace.wire import ErrorCode, Request

if TYPE_CHECKING:
    from headrace.broker.server import Broker

__all__ = [
    "alter_configs",
    "config_rows",
    "describe_configs",
    "incremental_alter_configs",
    "list_config_resources",
]

TOPIC, BROKER, GROUP = 2, 4, 32
FROM_TOPIC, FROM_BROKER, FROM_DEFAULT, FROM_GROUP = 1, 4, 5, 8
TYPES = {
    "bool": 1,
    "boolean": 1,
    "str": 2,
    "string": 2,
    "int": 3,
    "long": 5,
    "float": 6,
    "double": 6,
    "list": 7,
}
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3

# What Kafka's brokers call the default of a topic's setting, where that is another name.
_BROKER_NAMES = {
    "cleanup.policy": "log.cleanup.policy",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "index.interval.bytes": "log.index.interval.bytes",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "retention.bytes": "log.retention.bytes",
    "segment.bytes": "log.segment.bytes",
}


async def describe_configs(broker: "Broker", request: Request) -> dict[str, Any]:
    """Every setting of the resources asked for, with where its value comes from."""
    synonyms = request.body.include_synonyms
    return {"results": [_described(broker, resource, synonyms) for resource in request.body.resources]}


def _described(broker: "Broker", resource: Any, synonyms: bool) -> dict[str, Any]:
    answer = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
    try:
        if resource.resource_type == TOPIC:
            check_topic_name(resource.resource_name)
            topic = _topic(broker, resource.resource_name)
            configs = config_rows(topic.config, topic.overrides)
        elif resource.resource_type == BROKER:
            _check_is_us(broker, resource.resource_name)
            configs = _broker_configs(broker)
        elif resource.resource_type == GROUP:
            configs = _group_configs(broker, resource.resource_name)
        else:
            raise RequestError(
                "only topics, brokers and groups have configurations", code=ErrorCode.invalid_request
            )
    except RequestError as error:
        return {**answer, "error_code": error.code, "error_message": str(error)}
    wanted = resource.configuration_keys
    chosen = [config for config in configs if not wanted or config["name"] in wanted]
    if not synonyms:
        chosen = [{**config, "synonyms": ()} for config in chosen]
    return {**answer, "configs": chosen}


def config_rows(config: TopicConfig, overrides: Mapping[str, str]) -> list[dict[str, Any]]:
    """A topic's settings as answers have them; the first of the synonyms is where the value comes from."""
    values = config.as_strings()
    rows = []
    for name, setting in SETTINGS.items():
        own = {"name": name, "value": values[name], "source": FROM_TOPIC}
        default = {"name": _BROKER_NAMES.get(name, name), "value": setting.default, "source": FROM_DEFAULT}
        rows.append(
            {
                "name": name,
                "value": values[name],
                "config_source": FROM_TOPIC if name in overrides else FROM_DEFAULT,
                "config_type": TYPES.get(setting.kind, 0),
                "documentation": setting.help,
                "synonyms": [own, default] if name in overrides else [default],
            }
        )
    return rows


def _check_is_us(broker: "Broker", name: str) -> None:
    if name not in ("", str(broker.settings.node_id)):
        raise RequestError(
            f"there is no broker {name!r}, this one is {broker.settings.node_id}",
            code=ErrorCode.invalid_request,
        )


def _broker_configs(broker: "Broker") -> list[dict[str, Any]]:
    return [
        {
            "name": name.replace("_", "."),
            "value": str(value).lower() if kind == "bool" else str(value),
            "read_only": True,
            "config_source": FROM_DEFAULT if value == default else FROM_BROKER,
            "config_type": TYPES.get(kind, 0),
            "documentation": text,
        }
        for name, kind, default, text in describe(type(broker.settings))
        for value in (getattr(broker.settings, name),)
    ]


def _group_configs(broker: "Broker", group_id: str) -> list[dict[str, Any]]:
    table = broker.shares.table
    overrides = table.overrides.get(group_id, {})
    named = {"errors.deadletterqueue.topic.name": table.config(group_id).dead_letter_topic}
    return [
        {
            "name": name,
            "value": named.get(name) or overrides.get(name, config.default(broker.shares.settings)),
            "config_source": FROM_GROUP if name in overrides else FROM_DEFAULT,
            "config_type": TYPES.get(config.kind, 0),
            "documentation": config.help,
        }
        for name, config in GROUP_CONFIGS.items()
    ]


def _topic(broker: "Broker", name: str) -> Topic:
    topic = broker.topics.named(name)
    if topic is None:
        raise RequestError(f"there is no topic {name}", code=ErrorCode.unknown_topic_or_partition)
    return topic


async def alter_configs(broker: "Broker", request: Request) -> dict[str, Any]:
    """Replaces all overrides of a topic or a group."""
    answers = []
    for resource in request.body.resources:
        overrides = {config.name: config.value for config in resource.configs if config.value is not None}
        answers.append(await _altered(broker, resource, overrides, request.body.validate_only))
    return {"responses": answers}


async def incremental_alter_configs(broker: "Broker", request: Request) -> dict[str, Any]:
    """Sets, removes, appends to or subtracts from single overrides of a topic or a group."""
    answers = []
    for resource in request.body.resources:
        try:
            overrides = _changed(broker, resource)
        except RequestError as error:
            answers.append(_refused(resource, error))
            continue
        answers.append(await _altered(broker, resource, overrides, request.body.validate_only))
    return {"responses": answers}


def _changed(broker: "Broker", resource: Any) -> dict[str, str]:
    """The overrides after the operations that a request lists, each setting at most once."""
    asked = Counter(change.name for change in resource.configs)
    if asked and max(asked.values()) > 1:
        raise RequestError(
            f"{max(asked, key=asked.__getitem__)} is in the request more than once",
            code=ErrorCode.invalid_request,
        )
    if resource.resource_type == GROUP:
        overrides = dict(broker.shares.table.overrides.get(resource.resource_name, {}))
        current = dict(overrides)
    elif resource.resource_type == TOPIC:
        topic = _topic(broker, resource.resource_name)
        overrides, current = dict(topic.overrides), topic.config.as_strings()
    else:
        return {}
    for change in resource.configs:
        if change.config_operation == DELETE:
            overrides.pop(change.name, None)
        elif change.config_operation == SET and change.value is not None:
            overrides[change.name] = change.value
        elif change.config_operation in (APPEND, SUBTRACT) and change.value is not None:
            overrides[change.name] = _list_change(current, change)
        else:
            raise RequestError(
                f"operation {change.config_operation} is unknown", code=ErrorCode.invalid_request
            )
    return overrides


def _list_change(current: dict[str, str], change: Any) -> str:
    setting = SETTINGS.get(change.name)
    if setting is None or setting.kind != "list":
        raise RequestError(f"{change.name} is not a list", code=ErrorCode.invalid_config)
    items = [item for item in current[change.name].split(",") if item]
    given = [item.strip() for item in change.value.split(",")]
    if change.config_operation == APPEND:
        return ",".join(items + [item for item in given if item not in items])
    return ",".join(item for item in items if item not in given)


async def _altered(
    broker: "Broker", resource: Any, overrides: dict[str, str], validate_only: bool
) -> dict[str, Any]:
    try:
        if resource.resource_type == GROUP:
            check_overrides(overrides)
            if not validate_only:
                await broker.shares.configure(resource.resource_name, overrides)
            return _accepted(resource)
        if resource.resource_type != TOPIC:
            raise RequestError(
                "the broker's settings are given when it starts; see `headrace broker --help`",
                code=ErrorCode.invalid_request,
            )
        topic = _topic(broker, resource.resource_name)
        TopicConfig.from_overrides(overrides)
        if not validate_only:
            await broker.topics.alter_config(topic.name, overrides)
    except HeadraceError as error:
        return _refused(resource, error)
    return _accepted(resource)


def _accepted(resource: Any) -> dict[str, Any]:
    return {"resource_type": resource.resource_type, "resource_name": resource.resource_name, "error_code": 0}


def _refused(resource: Any, error: HeadraceError) -> dict[str, Any]:
    code = error.code if isinstance(error, RequestError) else int(ErrorCode.kafka_storage_error)
    return {
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
        "error_code": code,
        "error_message": str(error),
    }


async def list_config_resources(broker: "Broker", request: Request) -> dict[str, Any]:
    """Topics, the broker, and groups for which something is set."""
    wanted = set(request.body.resource_types) or {TOPIC, BROKER, GROUP}
    found = (
        [{"resource_name": str(broker.settings.node_id), "resource_type": BROKER}] if BROKER in wanted else []
    )
    if TOPIC in wanted:
        found += [{"resource_name": topic.name, "resource_type": TOPIC} for topic in broker.topics.all()]
    if GROUP in wanted:
        found += [
            {"resource_name": group_id, "resource_type": GROUP}
            for group_id in sorted(broker.shares.table.overrides)
        ]
    if request.api_version == 0:  # which knew client metrics only, and of those there are none
        found = []
    return {"config_resources": found}
