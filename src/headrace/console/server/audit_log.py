"""The audit topic: a record of every change that came through this API, whatever became of it.

Who, from where, what and with which outcome; never what was written, and never secrets.
The record is on disk before the change is answered. Where it cannot be written, the
change is answered all the same, for it has happened, and the failure is logged. Changes
that were refused again and again are summed up in one record a minute (`refusals.py`).
"""

import asyncio
import logging
from typing import Any

import orjson
from confluent_kafka import KafkaException
from confluent_kafka import admin as kafka_admin

from headrace.console.api import Call, Route, format_rfc3339
from headrace.console.context import ConsoleContext, LogClients
from headrace.console.routes.audit import AUDIT_TOPIC
from headrace.console.security import NOBODY
from headrace.console.server.refusals import Caller, Refusals, UnrecordedRefusals
from headrace.console.write.writer import ProducerRecord
from headrace.errors import HeadraceError, RequestError
from headrace.wire import ErrorCode

__all__ = ["AuditLog"]

logger = logging.getLogger(__name__)
kafka: Any = kafka_admin  # the vocabulary of admin requests, which is not exported to type checkers

_ANSWER_TIMEOUT_S = 10.0
_SUM_UP_S = 5.0
_LONGEST_TEXT = 250


class AuditLog:
    """Writes the records of changes; event loop only."""

    def __init__(self, context: ConsoleContext) -> None:
        self._context = context
        self._refusals = Refusals(context.settings.max_refusals_audited)

    async def record(self, call: Call, route: Route, status: int) -> None:
        """Writes the record of one change; never raises. What nobody tried in vain leaves none: it would be
        a way to fill the disk.
        """
        if status >= 400:
            if call.principal is NOBODY:
                return
            action, now_ms = f"{route.method} {route.path}", self._context.clock.monotonic_ms()
            if not self._refusals.is_recorded(_caller(call), action, status, now_ms):
                return
        await self._write(call.principal.name, entry(call, route, status))

    async def sum_up_refusals(self, *, all_of_them: bool = False) -> None:
        """Writes a record for each caller whose minute is over, of refusals without one of their own."""
        now_ms, at_ms = self._context.clock.monotonic_ms(), self._context.clock.now_ms()
        for caller, more in list(self._refusals.pop_ended(None if all_of_them else now_ms)):
            fields = summary(caller, more, at_ms, now_ms)
            try:
                async with asyncio.timeout(_ANSWER_TIMEOUT_S):
                    await self._write(caller.name, fields)
            except TimeoutError:
                logger.error(
                    "no audit record of %s by %s: the log takes too long", fields["action"], caller.name
                )

    async def keep_summing_up(self) -> None:
        """Sums up refusals until it is cancelled."""
        while True:
            await asyncio.sleep(_SUM_UP_S)
            await self.sum_up_refusals()

    async def _write(self, key: str, fields: dict[str, Any]) -> None:
        record = ProducerRecord(value=orjson.dumps(fields), key=key.encode())
        try:
            await self._context.workers.run(_ensure_topic, self._context.clients)
            (outcome,) = await self._context.writer.write(AUDIT_TOPIC, [record])
        except HeadraceError as error:
            outcome = error
        if isinstance(outcome, HeadraceError):
            logger.error("no audit record of %s (%d): %s", fields["action"], fields["status"], outcome)


def _caller(call: Call) -> Caller:
    client = call.request.client
    return Caller(
        name=call.principal.name,
        role=call.principal.role.name.lower(),
        address=None if client is None else client.host,
    )


def summary(caller: Caller, more: UnrecordedRefusals, at_ms: int, now_ms: int) -> dict[str, Any]:
    """What the record of several refusals holds; their times are of a clock that is at `now_ms` now."""
    count = sum(more.actions.values())
    return {
        "at": format_rfc3339(at_ms),
        "who": caller.name,
        "role": caller.role,
        "from": caller.address,
        "action": f"{count} more refused",
        "target": None,
        "given": {},
        "outcome": "refused",
        "status": more.status,
        "notes": {
            "refused": count,
            "first": format_rfc3339(at_ms - (now_ms - more.since_ms)),
            "last": format_rfc3339(at_ms - (now_ms - more.until_ms)),
            "actions": dict(more.actions),
        },
    }


def entry(call: Call, route: Route, status: int) -> dict[str, Any]:
    """What the record holds."""
    client = call.request.client
    given = {each.name: call.given.get(each.name) for each in route.parameters}
    return {
        "at": format_rfc3339(call.context.clock.now_ms()),
        "who": call.principal.name,
        "role": call.principal.role.name.lower(),
        "from": None if client is None else client.host,
        "action": f"{route.method} {route.path}",
        "target": next((_short(given[each.name]) for each in route.parameters if each.place == "path"), None),
        "given": {name: _short(value) for name, value in given.items() if value is not None},
        "outcome": "done" if status < 400 else "refused" if status < 500 else "failed",
        "status": status,
        "notes": call.notes,
    }


def _short(value: Any) -> Any:
    """The value, and of a long text its beginning: names of topics are shorter than that."""
    return value[:_LONGEST_TEXT] + "…" if isinstance(value, str) and len(value) > _LONGEST_TEXT else value


def _ensure_topic(clients: LogClients) -> None:
    """Makes the topic the first time; its records are kept for ever."""
    try:
        clients.layout(AUDIT_TOPIC)
    except RequestError as error:
        if error.code != ErrorCode.unknown_topic_or_partition:
            raise
        topic = kafka.NewTopic(
            AUDIT_TOPIC, num_partitions=1, config={"retention.ms": "-1", "retention.bytes": "-1"}
        )
        try:
            clients.admin().create_topics([topic])[AUDIT_TOPIC].result(_ANSWER_TIMEOUT_S)
        except KafkaException as raised:
            if raised.args[0].code() != ErrorCode.topic_already_exists:
                raise RequestError(f"{AUDIT_TOPIC} cannot be made: {raised.args[0].str()}") from raised
