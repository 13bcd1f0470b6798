"""The audit topic: a record of every change that came through this API, whatever became of it.

Who, from where, what and with which outcome; never what was written, and never secrets.
The record is on disk before the change is answered. Where it cannot be written, the
change is answered all the same, for it has happened, and the failure is logged.
"""

import logging
from typing import Any

import orjson
from confluent_kafka import KafkaException
from confluent_kafka import admin as kafka_admin

from headrace.console.parameters import format_time
from headrace.console.routing import Call, Route
from headrace.console.security import NOBODY
from headrace.console.surroundings import Surroundings
from headrace.console.writing import OutRecord
from headrace.errors import HeadraceError, RequestError
from headrace.wire import ErrorCode

__all__ = ["TOPIC", "note_change"]

logger = logging.getLogger(__name__)
kafka: Any = kafka_admin  # the vocabulary of admin requests, which is not exported to type checkers

TOPIC = "__headrace_audit"
_ANSWER_TIMEOUT_S = 10.0


async def note_change(call: Call, route: Route, status: int) -> None:
    """Writes the record of one change; never raises. What nobody tried in vain leaves none: it would be a way
    to fill the disk.
    """
    if call.principal is NOBODY and status >= 400:
        return
    record = OutRecord(value=orjson.dumps(entry(call, route, status)), key=call.principal.name.encode())
    try:
        await call.here.workers.run(_ensure_topic, call.here)
        (outcome,) = await call.here.writer.write(TOPIC, [record])
    except HeadraceError as error:
        outcome = error
    if isinstance(outcome, HeadraceError):
        logger.error("no audit record of %s %s (%d): %s", route.method, route.path, status, outcome)


def entry(call: Call, route: Route, status: int) -> dict[str, Any]:
    """What the record holds."""
    client = call.request.client
    given = {each.name: call.given.get(each.name) for each in route.parameters}
    return {
        "at": format_time(call.here.clock.now_ms()),
        "who": call.principal.name,
        "role": call.principal.role.name.lower(),
        "from": None if client is None else client.host,
        "action": f"{route.method} {route.path}",
        "target": next((given[each.name] for each in route.parameters if each.place == "path"), None),
        "given": {name: value for name, value in given.items() if value is not None},
        "outcome": "done" if status < 400 else "refused" if status < 500 else "failed",
        "status": status,
        "notes": call.notes,
    }


def _ensure_topic(here: Surroundings) -> None:
    """Makes the topic the first time; its records are kept for ever."""
    try:
        here.layout(TOPIC)
    except RequestError as error:
        if error.code != ErrorCode.unknown_topic_or_partition:
            raise
        topic = kafka.NewTopic(
            TOPIC, num_partitions=1, config={"retention.ms": "-1", "retention.bytes": "-1"}
        )
        try:
            here.admin().create_topics([topic])[TOPIC].result(_ANSWER_TIMEOUT_S)
        except KafkaException as raised:
            if raised.args[0].code() != ErrorCode.topic_already_exists:
                raise RequestError(f"{TOPIC} cannot be made: {raised.args[0].str()}") from raised
