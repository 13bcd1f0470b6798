"""Configurations of topics and queues (which can be changed) and of the broker (which can be read)."""

import dataclasses
from collections import Counter
from collections.abc import Mapping
from typing import Any

from headrace.broker.access import ClientSession, Operation, Resource
from headrace.broker.coordinators.queues import DeadLetters, QueueCoordinator
from headrace.broker.log import Topics
from headrace.broker.settings import BrokerSettings
from headrace.config import describe
from headrace.errors import HeadraceError, RequestError
from headrace.groups.share import DEAD_LETTER_TOPIC, GROUP_CONFIGS, check_overrides
from headrace.storage import Topic, TopicConfig, check_topic_name
from headrace.storage.directory import SETTINGS
from headrace.wire import ErrorCode, Request

__all__ = ["ConfigApis"]

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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ConfigApis:
    """Configurations of topics, groups and the broker."""

    settings: BrokerSettings
    topics: Topics
    queues: QueueCoordinator
    dead_letters: DeadLetters

    async def describe_configs(self, request: Request) -> dict[str, Any]:
        """Every setting of the resources asked for, with where its value comes from."""
        synonyms = request.body.include_synonyms
        return {"results": [self._described(resource, synonyms) for resource in request.body.resources]}

    def _described(self, resource: Any, synonyms: bool) -> dict[str, Any]:
        answer = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
        try:
            if resource.resource_type == TOPIC:
                check_topic_name(resource.resource_name)
                topic = self._topic(resource.resource_name)
                configs = config_rows(topic.config, topic.overrides)
            elif resource.resource_type == BROKER:
                self._check_is_us(resource.resource_name)
                configs = self._broker_configs()
            elif resource.resource_type == GROUP:
                configs = self._group_configs(resource.resource_name)
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

    def _check_is_us(self, name: str) -> None:
        if name not in ("", str(self.settings.node_id)):
            raise RequestError(
                f"there is no broker {name!r}, this one is {self.settings.node_id}",
                code=ErrorCode.invalid_request,
            )

    def _broker_configs(self) -> list[dict[str, Any]]:
        return [
            {
                "name": name.replace("_", "."),
                "value": str(value).lower() if kind == "bool" else str(value),
                "read_only": True,
                "config_source": FROM_DEFAULT if value == default else FROM_BROKER,
                "config_type": TYPES.get(kind, 0),
                "documentation": text,
            }
            for name, kind, default, text in describe(type(self.settings))
            for value in (getattr(self.settings, name),)
        ]

    def _group_configs(self, group_id: str) -> list[dict[str, Any]]:
        table = self.queues.table
        overrides = table.overrides.get(group_id, {})
        named = {DEAD_LETTER_TOPIC: table.config(group_id).dead_letter_topic}
        return [
            {
                "name": name,
                "value": named.get(name) or overrides.get(name, config.default(self.queues.settings)),
                "config_source": FROM_GROUP if name in overrides else FROM_DEFAULT,
                "config_type": TYPES.get(config.kind, 0),
                "documentation": config.help,
            }
            for name, config in GROUP_CONFIGS.items()
        ]

    def _topic(self, name: str) -> Topic:
        topic = self.topics.named(name)
        if topic is None:
            raise RequestError(f"there is no topic {name}", code=ErrorCode.unknown_topic_or_partition)
        return topic

    async def alter_configs(self, request: Request) -> dict[str, Any]:
        """Replaces all overrides of a topic or a group."""
        answers = []
        for resource in request.body.resources:
            overrides = {config.name: config.value for config in resource.configs if config.value is not None}
            answers.append(await self._altered(resource, overrides, request))
        return {"responses": answers}

    async def incremental_alter_configs(self, request: Request) -> dict[str, Any]:
        """Sets, removes, appends to or subtracts from single overrides of a topic or a group."""
        answers = []
        for resource in request.body.resources:
            try:
                overrides = self._changed(resource)
            except RequestError as error:
                answers.append(_refused(resource, error))
                continue
            answers.append(await self._altered(resource, overrides, request))
        return {"responses": answers}

    def _changed(self, resource: Any) -> dict[str, str]:
        """The overrides after the operations that a request lists, each setting at most once."""
        asked = Counter(change.name for change in resource.configs)
        if asked and max(asked.values()) > 1:
            raise RequestError(
                f"{max(asked, key=asked.__getitem__)} is in the request more than once",
                code=ErrorCode.invalid_request,
            )
        if resource.resource_type == GROUP:
            overrides = dict(self.queues.table.overrides.get(resource.resource_name, {}))
            current = dict(overrides)
        elif resource.resource_type == TOPIC:
            topic = self._topic(resource.resource_name)
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

    async def _altered(self, resource: Any, overrides: dict[str, str], request: Request) -> dict[str, Any]:
        validate_only = request.body.validate_only
        try:
            if resource.resource_type == GROUP:
                check_overrides(overrides)
                chosen = self._chosen_dead_letters(resource.resource_name, overrides, request.session)
                if not validate_only:
                    if chosen is not None and self.topics.named(chosen) is None:
                        await self.dead_letters.make_topic(chosen)
                    await self.queues.configure(resource.resource_name, overrides)
                return _accepted(resource)
            if resource.resource_type != TOPIC:
                raise RequestError(
                    "the broker's settings are given when it starts; see `headrace broker --help`",
                    code=ErrorCode.invalid_request,
                )
            topic = self._topic(resource.resource_name)
            TopicConfig.from_overrides(overrides)
            if not validate_only:
                await self.topics.alter_config(topic.name, overrides)
        except HeadraceError as error:
            return _refused(resource, error)
        return _accepted(resource)

    def _chosen_dead_letters(
        self, group_id: str, overrides: Mapping[str, str], caller: ClientSession | None
    ) -> str | None:
        """The topic that somebody who needs permission chooses for the dead letters of a queue, if any.

        The queue will write there regardless of who its members are. So it takes the permission to write, and
        to create where the topic is missing; RequestError otherwise.
        """
        chosen = overrides.get(DEAD_LETTER_TOPIC, "")
        before = self.queues.table.overrides.get(group_id, {}).get(DEAD_LETTER_TOPIC, "")
        if caller is None or not chosen or chosen == before:
            return None
        writes = caller.may(Operation.WRITE, Resource.TOPIC, chosen)
        if not writes or (self.topics.named(chosen) is None and not caller.may_create(chosen)):
            raise RequestError(
                f"dead letters cannot go to {chosen}:"
                f" this user may not {'create' if writes else 'write on'} it",
                code=ErrorCode.topic_authorization_failed,
            )
        return chosen

    async def list_config_resources(self, request: Request) -> dict[str, Any]:
        """Topics, the broker, and groups for which something is set."""
        wanted = set(request.body.resource_types) or {TOPIC, BROKER, GROUP}
        found = (
            [{"resource_name": str(self.settings.node_id), "resource_type": BROKER}]
            if BROKER in wanted
            else []
        )
        if TOPIC in wanted:
            found += [{"resource_name": topic.name, "resource_type": TOPIC} for topic in self.topics.all()]
        if GROUP in wanted:
            found += [
                {"resource_name": group_id, "resource_type": GROUP}
                for group_id in sorted(self.queues.table.overrides)
            ]
        if request.api_version == 0:  # which knew client metrics only, and of those there are none
            found = []
        return {"config_resources": found}


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


def _list_change(current: dict[str, str], change: Any) -> str:
    setting = SETTINGS.get(change.name)
    if setting is None or setting.kind != "list":
        raise RequestError(f"{change.name} is not a list", code=ErrorCode.invalid_config)
    items = [item for item in current[change.name].split(",") if item]
    given = [item.strip() for item in change.value.split(",")]
    if change.config_operation == APPEND:
        return ",".join(items + [item for item in given if item not in items])
    return ",".join(item for item in items if item not in given)


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
