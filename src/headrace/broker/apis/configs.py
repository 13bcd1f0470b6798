"""Configurations of topics (which can be changed) and of the broker (which can be read)."""

from typing import TYPE_CHECKING, Any

from headrace.config import describe
from headrace.errors import HeadraceError, RequestError
from headrace.storage import Topic, TopicConfig
from headrace.storage.topic_config import SETTINGS
from headrace.wire import ErrorCode, Request

if TYPE_CHECKING:
    from headrace.broker.server import Broker

__all__ = ["alter_configs", "describe_configs", "incremental_alter_configs", "list_config_resources"]

TOPIC, BROKER = 2, 4
FROM_TOPIC, FROM_BROKER, FROM_DEFAULT = 1, 4, 5
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


async def describe_configs(broker: "Broker", request: Request) -> dict[str, Any]:
    """Every setting of the resources asked for, with where its value comes from."""
    return {"results": [_described(broker, resource) for resource in request.body.resources]}


def _described(broker: "Broker", resource: Any) -> dict[str, Any]:
    answer = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
    try:
        if resource.resource_type == TOPIC:
            configs = _topic_configs(_topic(broker, resource.resource_name))
        elif resource.resource_type == BROKER:
            configs = _broker_configs(broker)
        else:
            raise RequestError("only topics and brokers have configurations", code=ErrorCode.invalid_request)
    except RequestError as error:
        return {**answer, "error_code": error.code, "error_message": str(error)}
    wanted = resource.configuration_keys
    return {**answer, "configs": [config for config in configs if not wanted or config["name"] in wanted]}


def _topic_configs(topic: Topic) -> list[dict[str, Any]]:
    values = topic.config.as_strings()
    return [
        {
            "name": name,
            "value": values[name],
            "config_source": FROM_TOPIC if name in topic.overrides else FROM_DEFAULT,
            "config_type": TYPES.get(setting.kind, 0),
            "documentation": setting.help,
        }
        for name, setting in SETTINGS.items()
    ]


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


def _topic(broker: "Broker", name: str) -> Topic:
    topic = broker.topics.named(name)
    if topic is None:
        raise RequestError(f"there is no topic {name}", code=ErrorCode.unknown_topic_or_partition)
    return topic


async def alter_configs(broker: "Broker", request: Request) -> dict[str, Any]:
    """Replaces all overrides of a topic."""
    answers = []
    for resource in request.body.resources:
        overrides = {config.name: config.value for config in resource.configs if config.value is not None}
        answers.append(await _altered(broker, resource, overrides, request.body.validate_only))
    return {"responses": answers}


async def incremental_alter_configs(broker: "Broker", request: Request) -> dict[str, Any]:
    """Sets, removes, appends to or subtracts from single overrides of a topic."""
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
    """The overrides after the operations that a request lists."""
    if resource.resource_type != TOPIC:
        return {}
    topic = _topic(broker, resource.resource_name)
    overrides, current = dict(topic.overrides), topic.config.as_strings()
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
    """Topics and the broker."""
    wanted = set(request.body.resource_types) or {TOPIC, BROKER}
    found = (
        [{"resource_name": str(broker.settings.node_id), "resource_type": BROKER}] if BROKER in wanted else []
    )
    if TOPIC in wanted:
        found += [{"resource_name": topic.name, "resource_type": TOPIC} for topic in broker.topics.all()]
    if request.api_version == 0:  # which knew client metrics only, and of those there are none
        found = []
    return {"config_resources": found}
