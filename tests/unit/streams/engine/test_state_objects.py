"""State in an object store, the records of batches, and drivers that have been replaced."""

import random

import pytest

from headrace.errors import CorruptionError, FencedError
from headrace.objects import open_objects
from headrace.streams.engine.messages import BlobKind
from headrace.streams.engine.state.checkpoint_records import (
    CheckpointRecord,
    CheckpointRecords,
    StateAtUrl,
    newest_record,
    recorded,
    restore,
)
from headrace.streams.engine.state.log import append, load
from headrace.streams.engine.state.objects import read_receipts

FOLDER = "checkpoints/queries/orders"


class Sum:
    """The least of states: a sum, whose deltas are what was added."""

    def __init__(self):
        self.total = 0

    def held(self):
        return ()

    def snapshot(self):
        return str(self.total).encode()

    def replay(self, stored):
        text = stored.decode()
        self.total = self.total + int(text[1:]) if text.startswith("+") else int(text)


class Driver:
    """One run of a query of one bucket: Spark's files are made up, and a batch adds a number."""

    def __init__(self, root, machine, epoch, *, query="q"):
        self.url, self.checkpoint = f"file://{root}/objects", root / machine
        self.objects, self.is_owner = open_objects(self.url), True
        state = StateAtUrl(url=self.url, folder=FOLDER, query=query, epoch=epoch)
        found = newest_record(self.objects, FOLDER, query)
        self.checkpoint.mkdir()
        (self.checkpoint / "metadata").write_text("spark's id")
        for name in ("offsets", "commits"):
            (self.checkpoint / name).mkdir()
        if found is not None:
            restore(found, self.checkpoint)
        self.restored = found
        self.records = CheckpointRecords(state, self.checkpoint, self._require, found)

    def _require(self):
        if not self.is_owner:
            raise FencedError("so this run stops")

    @property
    def next(self):
        """The batch that Spark begins with: the last that it has offsets of."""
        return max([int(each.name) for each in (self.checkpoint / "offsets").iterdir()], default=0)

    def plan(self, batch, amount):
        """What Spark does before it begins a batch; one whose offsets are there is repeated as it is."""
        path = self.checkpoint / "offsets" / str(batch)
        if not path.exists():
            path.write_text(str(amount))

    def attempt(self, batch, cached=None):
        """One attempt of the batch's task, in a worker that has this copy."""
        amount = int((self.checkpoint / "offsets" / str(batch)).read_text())
        log = self.records.state.logs(0, batch)(0)
        copy = load(log, lambda: [Sum()], cached, batch, 0)
        copy.states[0].total += amount
        append(log, copy, batch, [f"+{amount}".encode()])
        return copy, log.receipt

    def run(self, batch, amount, cached=None):
        """Carries a batch out; the copy, whose sum is what the batch puts out."""
        self.plan(batch, amount)
        with recorded(self.records, batch) as receipts:
            copy, receipt = self.attempt(batch, cached)
            list(receipts.apart([(-1, BlobKind.STATE, receipt)]))
        (self.checkpoint / "commits" / str(batch)).write_text("done")
        return copy


@pytest.mark.parametrize("seed", range(4))
def test_whatever_driver_or_worker_goes_on_every_batch_counts_once(seed, tmp_path):
    print(f"seed {seed}")
    chance, expected, outputs = random.Random(seed), 0, {}
    epoch, driver, workers = 1, Driver(tmp_path, "0", 1), [None, None]
    for batch in range(80):
        amount = chance.randrange(100)
        if chance.random() < 0.2:  # the driver dies, before its batch or within it
            if chance.random() < 0.5:
                driver.plan(batch, amount)
                driver.records.begin(batch)
                driver.attempt(batch)
            epoch, workers = epoch + 1, [None, None]
            driver = Driver(tmp_path, str(epoch), epoch)
            for again in range(driver.next, batch):  # the last one is repeated
                assert driver.run(again, -1).states[0].total == outputs[again]
        driver.plan(batch, amount)
        driver.records.begin(batch)
        while chance.random() < 0.3:  # an attempt that is forgotten
            driver.attempt(batch, None)
        number = chance.randrange(2)
        workers[number] = driver.run(batch, amount, workers[number])
        expected += int((driver.checkpoint / "offsets" / str(batch)).read_text())
        outputs[batch] = workers[number].states[0].total
        assert outputs[batch] == expected
    assert len(driver.objects.names("state")) < 80
    assert len(driver.objects.names(FOLDER)) <= 5


def test_a_driver_that_was_replaced_does_not_begin_and_its_objects_are_not_taken(tmp_path):
    old = Driver(tmp_path, "old", 1)
    old.run(0, 1)
    old.run(1, 10)
    new = Driver(tmp_path, "new", 2)
    old.is_owner = False
    old.plan(2, 100)
    with pytest.raises(FencedError):
        old.records.begin(2)
    old.attempt(2)  # a worker of its that did not hear of it
    assert new.next == 1
    assert new.run(1, -1).states[0].total == 11
    assert new.run(2, 1000).states[0].total == 1011
    third = Driver(tmp_path, "third", 3)
    assert (third.restored.epoch, third.restored.batch) == (2, 2)
    assert third.run(2, -1).states[0].total == 1011
    assert third.run(3, 5).states[0].total == 1016


def test_a_batch_that_the_old_driver_was_allowed_to_begin_is_repeated_as_it_was(tmp_path):
    old = Driver(tmp_path, "old", 1)
    old.run(0, 1)
    old.plan(1, 10)
    old.records.begin(1)  # it owns the application, and may put out what comes of it
    new = Driver(tmp_path, "new", 2)
    assert new.next == 1
    new.plan(1, 77)  # which Spark would do, had it no offsets of that batch
    assert new.run(1, -1).states[0].total == 11


def test_a_batch_that_is_repeated_after_it_was_done_builds_on_the_one_before_it(tmp_path):
    driver = Driver(tmp_path, "a", 1)
    driver.run(0, 1)
    driver.run(1, 10)
    assert driver.run(1, -1).states[0].total == 11
    assert driver.run(2, 100).states[0].total == 111


def test_an_entry_is_found_by_its_token_and_not_by_a_list(tmp_path):
    driver = Driver(tmp_path, "a", 1)
    driver.run(0, 1)
    driver.plan(1, 10)
    with recorded(driver.records, 1) as receipts:
        kept, receipt = driver.attempt(1)
        list(receipts.apart([(-1, BlobKind.STATE, receipt)]))
    (driver.checkpoint / "commits" / "1").write_text("done")
    forgotten, _ = driver.attempt(1)
    assert forgotten.head.token != kept.head.token
    driver.plan(2, 100)
    driver.records.begin(2)
    log = driver.records.state.logs(0, 2)(0)
    assert log.entry(1)[0].token == kept.head.token
    assert load(log, lambda: [Sum()], forgotten, 2, 0) is not forgotten
    assert {place: each.token for place, each in read_receipts(receipt).items()} == {"0/0": kept.head.token}


def test_state_that_is_missing_damaged_or_anothers_is_never_taken(tmp_path):
    driver = Driver(tmp_path, "a", 1)
    driver.run(0, 1)
    driver.plan(1, 10)
    driver.records.begin(1)
    (name,) = driver.objects.names("state")
    whole = driver.objects.get(name)
    for damaged in (b"", whole[:10], whole[:-1], whole[:30] + b"?" + whole[31:]):
        driver.objects.put(name, [damaged])
        with pytest.raises(CorruptionError, match=r"behind batch 0.*is not what was written.*rebuild"):
            fresh(driver, 1)
    driver.objects.put(name, [whole])
    driver.attempt(1)
    (later,) = [each for each in driver.objects.names("state") if each != name]
    driver.objects.put(name, [driver.objects.get(later)])
    with pytest.raises(CorruptionError, match="it is that of batch 1 with token"):
        fresh(driver, 1)
    driver.objects.remove([name])
    with pytest.raises(CorruptionError, match=r"it is not there; rebuild the views"):
        fresh(driver, 1)
    other = Driver(tmp_path, "b", 1, query="another")
    other.run(0, 7)
    (foreign,) = other.objects.names("state/another")
    driver.objects.put(name, [driver.objects.get(foreign)])
    with pytest.raises(CorruptionError, match="is that of query another, and not of query q"):
        fresh(driver, 1)


def fresh(driver, batch):
    """The state as a worker on another machine finds it."""
    log = driver.records.state.logs(0, batch)(0)
    log._heads.clear()
    return load(log, lambda: [Sum()], None, batch, 0)


def test_a_batch_without_its_record_or_with_buckets_missing_is_refused(tmp_path):
    driver = Driver(tmp_path, "a", 1)
    driver.run(0, 1)
    with pytest.raises(CorruptionError, match=r"the record of batch 1, .* is not there"):
        driver.records.state.logs(0, 1)
    driver.plan(1, 1)
    driver.records.begin(1)
    with pytest.raises(CorruptionError, match="has left 0 buckets, and the one before it 1"):
        driver.records.end(1, [])
    driver.plan(7, 1)
    with pytest.raises(CorruptionError, match="what batch 6 has left is not known"):
        driver.records.begin(7)


def test_a_damaged_record_is_refused_and_one_that_was_never_completed_is_passed_over(tmp_path):
    driver = Driver(tmp_path, "a", 1)
    driver.run(0, 1)
    driver.objects.put(f"{FOLDER}/q.000000000001.00000001", [b""])
    assert newest_record(driver.objects, FOLDER, "q").batch == 0
    driver.objects.put(f"{FOLDER}/q.000000000001.00000001", [b"{}"])
    with pytest.raises(CorruptionError, match=r"newest record .* cannot be used: .*rebuild the views"):
        newest_record(driver.objects, FOLDER, "q")
    newer = CheckpointRecord(query="q", batch=1, epoch=1, files={}, tokens={}, format=99)
    driver.objects.put(f"{FOLDER}/{newer.name}", [newer.encode()])
    with pytest.raises(CorruptionError, match="newer version"):
        newest_record(driver.objects, FOLDER, "q")


def test_what_earlier_runs_and_replaced_queries_left_is_removed(tmp_path):
    old = Driver(tmp_path, "a", 1, query="replaced")
    old.run(0, 1)
    old.objects.put(f"{FOLDER}/manifest.00000001", [b"{}"])
    new = Driver(tmp_path, "b", 2)
    new.objects.put(f"{FOLDER}/manifest.00000002", [b"{}"])
    new.run(0, 1)
    names = new.objects.names(FOLDER)
    assert names == [f"{FOLDER}/manifest.00000002", f"{FOLDER}/q.000000000000.00000002"]
    assert not new.objects.names("state/replaced")
