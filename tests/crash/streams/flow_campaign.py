"""What is written to the topics of dataflows, and what their views and topics must be when all is over."""

import json
from collections import Counter
from typing import Any

from flow_application import TOPICS
from stream_campaign import Traffic, check_changelog, headers_of, records_on

from headrace.app.query import READ
from headrace.client import Connection

ITEMS = ("tea", "pot", "cup", "jug", "tin")
OWNERS = 6


class FlowTraffic(Traffic):
    """Writes to all topics until told to end: in time, late, malformed; tables change, and rows go."""

    def _produce(self, sender: Any) -> None:
        topic = self._random.choice(("searches", "searches", "clicks", "clicks", "clicks", "items", "owners"))
        partition, key, value = getattr(self, f"_{topic}")()
        if self._random.random() < 0.005:
            value = b'{"search": '
        sender.produce(topic, value, key=key, partition=partition)

    def _at(self) -> int:
        late = self._random.choice((6_000, 9_000, 30_000)) if self._random.random() < 0.04 else 0
        return self._start_ms + self._number * 20 - self._random.randrange(1500) - late

    def _searches(self) -> tuple[int, bytes, bytes]:
        row = {"search": self._number, "item": self._random.choice(ITEMS), "at": self._at()}
        return self._random.randrange(2), b"", json.dumps(row).encode()

    def _clicks(self) -> tuple[int, bytes, bytes]:
        search = max(0, self._number - self._random.randrange(60))
        row = {"click": self._number, "search": search, "clicked_at": self._at() + 500}
        return self._random.randrange(2), b"", json.dumps(row).encode()

    def _items(self) -> tuple[int, bytes, bytes | None]:
        number = self._random.randrange(len(ITEMS))
        row = {
            "item": ITEMS[number],
            "price": round(self._random.uniform(0, 9), 2),
            "owner": self._random.randrange(OWNERS + 1),
            "since": self._at(),
        }
        is_gone = self._random.random() < 0.1
        return number % 2, json.dumps(ITEMS[number]).encode(), None if is_gone else json.dumps(row).encode()

    def _owners(self) -> tuple[int, bytes, bytes | None]:
        number = self._random.randrange(OWNERS)
        row = {"owner": number, "region": self._random.choice(("north", "south", "west"))}
        is_gone = self._random.random() < 0.1
        return number % 2, json.dumps(number).encode(), None if is_gone else json.dumps(row).encode()


def check_flows(
    connection: Connection, verdicts: dict[str, dict[str, Any]], views: set[str]
) -> dict[str, int]:
    """ViewEqualsRecomputation, BooksBalance per input, EachRecordOnceInSink; returns what was counted."""
    assert verdicts.keys() == views
    for verdict in verdicts.values():
        assert not verdict["failure"] and not verdict["differences"], f"ViewEqualsRecomputation: {verdict}"
        assert verdict["rows"], verdict
    records = {topic: len(records_on(connection, topic)) for topic in TOPICS}
    dead: Counter[str] = Counter()
    for verdict in verdicts.values():
        for topic, counts in verdict["inputs"].items():
            if topic in records:
                read = sum(counts.get(word, 0) for word in READ)
                assert read == records[topic], f"BooksBalance: {topic} of {verdict['view']}: {counts}"
                dead[topic] += counts.get("dead", 0)
    letters = [headers_of(each) for each in records_on(connection, "flows.dead")]
    assert Counter(each["headrace.dead.topic"] for each in letters) == +dead, "EachRecordOnceInSink: dead"
    late = [headers_of(each) for each in records_on(connection, "flows.late")]
    dropped = Counter({name: each["counters"].get("dropped", 0) for name, each in verdicts.items()})
    found = Counter(each["headrace.late.view"] for each in late)
    assert found == +dropped, f"EachRecordOnceInSink: late {found}, not {dropped}"
    check_changelog(connection, "per_window")
    return {**records, "late": len(late), "dead": len(letters)}
