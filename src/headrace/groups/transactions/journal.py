"""Transactional ids as records of the internal topic `__transaction_state`: JSON that a person can read.

The key names the id, the value all that is known of it; no value means forgotten. What is
ongoing is not part of it (see `recovery`).

    {"v":1,"kind":"transaction","id":T}
        {"v":1,"state":"PrepareCommit","producer":[P,E],"last":[P,E],"timeout_ms":N,
         "decided":{"producer":[P,E],"marker_epoch":E,"commit":true,"complete":false,
                    "partitions":{"<topic id>":[0]},"ends":{"<topic id>":[17]},"groups":["g"]}}

Version 1 of the value had no `ends`; keys are of version 1 still, since compaction compares them.
"""

from typing import Any
from uuid import UUID

import orjson

from headrace.errors import CorruptionError
from headrace.groups.events import Partitions, TopicPartition
from headrace.groups.transactions.events import TransactionalRemoved, TransactionalSaved, TransactionEvent
from headrace.groups.transactions.state import Claim, DecidedEnd, Transactional

__all__ = ["VERSION", "decode", "encode"]

VERSION = 2
_KEY_VERSION = 1


def encode(event: TransactionEvent) -> tuple[bytes, bytes | None]:
    """Key and value of the event's record."""
    if isinstance(event, TransactionalRemoved):
        return _key(event.transactional_id), None
    producer = event.producer
    value = {
        "v": VERSION,
        "state": producer.state,
        "producer": list(producer.claim),
        "last": list(producer.last) if producer.last is not None else None,
        "timeout_ms": producer.timeout_ms,
        "decided": _decided_value(producer.decided) if producer.decided is not None else None,
    }
    return _key(producer.transactional_id), orjson.dumps(value)


def _key(transactional_id: str) -> bytes:
    return orjson.dumps({"v": _KEY_VERSION, "kind": "transaction", "id": transactional_id})


def _decided_value(decided: DecidedEnd) -> dict[str, Any]:
    partitions: dict[str, list[int]] = {}
    ends: dict[str, list[int]] = {}
    for topic_id, index in sorted(decided.partitions):
        partitions.setdefault(str(topic_id), []).append(index)
        if decided.ends is not None:
            ends.setdefault(str(topic_id), []).append(decided.ends.get((topic_id, index), 0))
    return {
        "producer": list(decided.claim),
        "marker_epoch": decided.marker_epoch,
        "commit": decided.commit,
        "complete": decided.complete,
        "partitions": partitions,
        "ends": None if decided.ends is None else ends,
        "groups": sorted(decided.groups),
    }


def decode(key: bytes | None, value: bytes | None) -> TransactionEvent:
    """The event a record stands for; CorruptionError if it is none, or from a newer Headrace."""
    try:
        what = orjson.loads(key or b"")
        said = None if value is None else orjson.loads(value)
        version = said["v"] if said else 0
        if what["v"] > _KEY_VERSION or version > VERSION:
            raise CorruptionError(
                f"a record of transactions has version {version} (key {what['v']}), this Headrace"
                f" knows {VERSION} (key {_KEY_VERSION}): start a newer one"
            )
        transactional_id = _transactional_id(what)
        if said is None:
            return TransactionalRemoved(transactional_id=transactional_id)
        return TransactionalSaved(producer=_producer(transactional_id, said))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptionError(
            f"the record with key {(key or b'')[:200]!r} is no record of transactions ({error!r})"
        ) from error


def _transactional_id(what: dict[str, Any]) -> str:
    if what["kind"] != "transaction":
        raise ValueError(f"kind {what['kind']!r}")
    return str(what["id"])


def _producer(transactional_id: str, said: dict[str, Any]) -> Transactional:
    return Transactional(
        transactional_id=transactional_id,
        claim=Claim(*said["producer"]),
        last=Claim(*said["last"]) if said["last"] is not None else None,
        timeout_ms=said["timeout_ms"],
        decided=_decided(said["decided"]) if said["decided"] is not None else None,
    )


def _decided(said: dict[str, Any]) -> DecidedEnd:
    return DecidedEnd(
        claim=Claim(*said["producer"]),
        marker_epoch=said["marker_epoch"],
        commit=said["commit"],
        complete=said["complete"],
        partitions=_partitions(said["partitions"]),
        groups=frozenset(said["groups"]),
        ends=_ends(said["partitions"], said.get("ends")),
    )


def _ends(
    partitions: dict[str, list[int]], ends: dict[str, list[int]] | None
) -> dict[TopicPartition, int] | None:
    if ends is None:
        return None
    return {
        (UUID(topic_id), index): end
        for topic_id, indexes in partitions.items()
        for index, end in zip(indexes, ends[topic_id], strict=True)
    }


def _partitions(said: dict[str, list[int]]) -> Partitions:
    return frozenset((UUID(topic_id), index) for topic_id, indexes in said.items() for index in indexes)
