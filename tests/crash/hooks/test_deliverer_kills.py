"""The deliverer killed with -9 at random moments, while records come and a query is rebuilt.

`NothingMissed`: every record arrives. `OrderKept`: in each partition, first arrivals are in
order. `SameIdAlways`: what arrives twice has the id it had, and no two records share one.
`RepeatsBounded`: a kill repeats no more than what may be unsaved.
"""

import os
import random
import time
from collections import defaultdict

import pytest
from hook_lives import FAST, DelivererLife, Log, new_secret
from receivers import OK, Receiver, answer

from headrace.client.write import OutputRecord, RecordSink
from headrace.records import SourceRecord, source_header
from headrace.testing.broker import BrokerProcess

UNSAVED = 100 + 3  # of a hook, and one under way for each partition


@pytest.mark.parametrize("kills", [5, pytest.param(50, marks=pytest.mark.slow)])
@pytest.mark.timeout(1800)
def test_kills_at_random_moments(tmp_path, kills):
    seed = int(os.environ.get("HEADRACE_SEED", random.SystemRandom().randrange(2**32)))
    print(f"seed {seed}")
    chance = random.Random(seed)
    secret = new_secret()
    manners = random.Random(seed + 1)

    def reply(*_):
        """A receiver that is not at its best."""
        fate = manners.random()
        if fate < 0.02:
            return answer(503)
        return (lambda connection: connection.close()) if fate < 0.03 else OK

    with BrokerProcess(tmp_path / "log") as broker, Receiver(secret, reply=reply) as receiver:
        log = Log(broker.bootstrap)
        plain, source, derived = log.topic("plain", 3), log.topic("orders", 2), log.topic("large", 3)
        given = {"secret": "env:HOOK_SECRET", "allow": "127.0.0.1", "tries": 100, **FAST}
        log.app.webhook(plain, url=receiver.url + "/plain", name="plain", **given)
        log.app.webhook(derived, url=receiver.url + "/derived", name="derived", **given)
        life = DelivererLife(log, tmp_path / "data", sources=[source], environment={"HOOK_SECRET": secret})
        with life:  # the hooks are enabled before the first record comes
            writer = Writer(log, plain, source, derived, seed)
            for _ in range(kills):
                writer.write()
                receiver.wait_for(writer.has_come(len(receiver.requests) + chance.randint(1, 60)), 120)
                time.sleep(chance.uniform(0, 0.05))  # between two saves, or in one
                life.kill()
                life.start()
                if chance.random() < 0.8:
                    life.wait_ready()
            receiver.wait_for(writer.all_arrived, timeout_s=120)
            found = log.wait_for(lambda hooks: all(each["behind"] == 0 for each in hooks.values()), 120)
    check(receiver, writer, kills, found)


class Writer:
    """Plain records, and a query that derives records from a source and is rebuilt now and then."""

    def __init__(self, log, plain, source, derived, seed):
        self.log, self.plain, self.source, self.derived = log, plain, source, derived
        self.chance = random.Random(seed + 2)
        self.plain_sent = 0
        self.orders = [0, 0]
        self.derived_sources = set()
        self.rebuilds = 0
        self.rebuild()

    def rebuild(self):
        """Another query begins at the start of the source."""
        self.rebuilds += 1
        name = f"{self.log.app.name}-orders"
        self.sink, self.read = RecordSink(self.log.connection, name, f"query {self.rebuilds}"), [0, 0]
        self.batch = 0

    def write(self):
        """A few batches; before them, one time in three, a rebuild."""
        if self.plain_sent and self.chance.random() < 0.34:
            self.sink.close()
            self.rebuild()
        for _ in range(self.chance.randint(1, 4)):
            self.log.send(self.plain, *range(self.plain_sent, self.plain_sent + 15))
            self.plain_sent += 15
            for partition in (0, 1):
                count = self.chance.randint(0, 10)
                self.log.send(self.source, *range(count), partition=partition)
                self.orders[partition] += count
            self.sink.write(self.batch, list(self.rows()))
            self.batch += 1

    def rows(self):
        for partition, end in enumerate(self.orders):
            for offset in range(self.read[partition], end):
                if offset % 3:  # what the query's condition lets through
                    self.derived_sources.add((partition, offset))
                    header = source_header(SourceRecord(self.source, partition, offset))
                    yield OutputRecord(self.derived, None, b"{}", (header,))
            self.read[partition] = end

    def has_come(self, count):
        """So many requests, or all there can be."""
        return lambda requests: len(requests) >= count or self.all_arrived(requests)

    def all_arrived(self, requests):
        plain = {each.source for each in requests if "/plain" in each.line}
        derived = {each.source[1:] for each in requests if "/derived" in each.line}
        return len(plain) >= self.plain_sent and derived >= self.derived_sources


def check(receiver, writer, kills, found):
    assert not receiver.invalid
    ids, firsts, times = {}, defaultdict(list), defaultdict(int)
    for request in receiver.requests:
        what = (request.line, request.source)
        if what not in ids:
            firsts[request.line, request.source[:2]].append(request.source[2])
        ids.setdefault(what, request.id)
        times[what] += 1
        assert ids[what] == request.id, "SameIdAlways"
    assert len(set(ids.values())) == len(ids), "SameIdAlways"
    plain = [offsets for (line, _), offsets in firsts.items() if "/plain" in line]
    assert sum(map(len, plain)) == writer.plain_sent, "NothingMissed"
    assert all(offsets == sorted(offsets) for offsets in plain), "OrderKept"
    assert {source[1:] for line, source in ids if "/derived" in line} == writer.derived_sources
    failed = sum(each["counts"]["retried"] for each in found.values())
    again = sum(times.values()) - len(times)
    print(f"{len(times)} records, {again} repeats, {failed} tried again, {kills} kills; {found}")
    assert found["derived"]["counts"]["muted"] > 0 or writer.rebuilds == 1
    assert all(each["counts"]["dead"] == each["counts"]["missed"] == 0 for each in found.values())
    assert again <= failed + kills * 2 * UNSAVED + 2 * kills, "RepeatsBounded"
