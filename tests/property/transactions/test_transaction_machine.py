"""Random lives of a transactional id: instances come and go, requests repeat or come late, the broker dies.

The world is small but honest: a journal and partitions of which a crash keeps any
prefix that covers what was synced; answers are given only for what is synced. Named
invariants: DecidedOnce, CommittedMeansAll, NoTornTransaction, EpochsOnlyGrow,
EverythingEnds, NewInstancesAreNew. Hypothesis prints the steps of a failure.
"""

from collections import defaultdict
from dataclasses import dataclass, field, replace
from uuid import UUID

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headrace.groups import Code, GroupSettings
from headrace.groups import transactions as txn
from headrace.groups.transactions import Claim, InitRequest, Open
from headrace.groups.transactions.journal import decode, encode

TOPIC = UUID(int=7)
TIMEOUT_MS = 10_000
SETTINGS = GroupSettings()
PARTITIONS = range(3)
GONE = {Code.PRODUCER_FENCED, Code.INVALID_PRODUCER_ID_MAPPING, Code.INVALID_TXN_STATE}


@dataclass
class Log:
    """A file of which a crash keeps what is synced and perhaps some more."""

    entries: list = field(default_factory=list)
    synced: int = 0

    def sync(self):
        self.synced = len(self.entries)

    def crash(self, keep):
        del self.entries[max(self.synced, min(keep, len(self.entries))) :]
        self.sync()


@dataclass(eq=False)
class Instance:
    """A producer as clients behave: it commits only what was acknowledged."""

    number: int
    bumps: bool
    claim: Claim | None = None
    serial: int = 0
    added: set = field(default_factory=set)
    unacknowledged: set = field(default_factory=set)
    wrote: bool = False
    ending: bool | None = None
    gone: bool = False

    @property
    def idle(self):
        return not self.gone and self.claim is not None and self.ending is None

    def next_transaction(self, claim):
        self.claim, self.serial, self.ending = claim, self.serial + 1, None
        self.added, self.unacknowledged, self.wrote = set(), set(), False


class TransactionalLife(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.now_ms = 1_000
        self.journal = Log()
        self.logs = [Log() for _ in PARTITIONS]
        self.producer = None
        self.queued = None  # the decision whose markers are in the partitions
        self.waiting = []  # (length of the journal, what to do once it is synced)
        self.instances = []
        self.next_id = 100
        self.answered = {}  # (instance, serial) -> how it was told that it ended
        self.acknowledged = defaultdict(set)
        self.sent_ends = []
        self.highest = {}

    # --- the shell ----------------------------------------------------------------------------

    def new_id(self):
        self.next_id += 1
        return self.next_id

    def take(self, verdict):
        self.producer = verdict.producer
        if verdict.save:
            self.journal.entries.append(encode(txn.TransactionalSaved(producer=verdict.producer)))

    def when_synced(self, call):
        self.waiting.append((len(self.journal.entries), call))

    def queue_markers(self):
        decided = self.producer.unfinished if self.producer else None
        if decided is None or self.queued is decided or self.journal.synced < len(self.journal.entries):
            return
        self.queued = decided
        for _, index in decided.partitions:
            self.logs[index].entries.append(
                ("marker", decided.claim.producer_id, decided.marker_epoch, decided.commit)
            )

    def unqueued(self):
        return self.producer.unfinished is not None and self.queued is not self.producer.unfinished

    @rule()
    def sync_journal(self):
        self.journal.sync()
        self.queue_markers()
        due, self.waiting = self.waiting, []
        for _, call in due:
            call()

    @rule(index=st.sampled_from(PARTITIONS))
    def sync_partition(self, index):
        self.logs[index].sync()
        for entry in self.logs[index].entries:
            if entry[0] == "data":
                _, instance, serial, *_ = entry
                if instance.serial == serial:
                    instance.unacknowledged.discard((index, entry[-1]))
                self.acknowledged[instance, serial].add((index, entry[-1]))

    @precondition(lambda self: self.producer is not None and self.producer.unfinished is not None)
    @rule()
    def complete(self):
        decided = self.producer.unfinished
        if self.queued is decided and all(
            self.logs[index].synced == len(self.logs[index].entries) for _, index in decided.partitions
        ):
            self.take(txn.complete(self.producer))

    def open_in(self, log):
        """Claims with open transactions, and where these begin."""
        opened = {}
        for offset, entry in enumerate(log.entries):
            if entry[0] == "data":
                claim = entry[3]
                _, first_offset = opened.get(claim.producer_id, (claim, offset))
                opened[claim.producer_id] = claim, first_offset
            else:
                opened.pop(entry[1], None)
        return list(opened.values())

    @rule(keep=st.integers(0, 100), keeps=st.tuples(*[st.integers(0, 100) for _ in PARTITIONS]))
    def crash(self, keep, keeps):
        self.journal.crash(keep)
        for log, kept in zip(self.logs, keeps, strict=True):
            log.crash(kept)
        self.waiting, self.queued = [], None
        known = {}
        for record in self.journal.entries:
            event = decode(*record)
            known[event.producer.transactional_id] = replace(event.producer, changed_ms=self.now_ms)
        opened = [
            Open(claim=claim, partition=(TOPIC, index), first_offset=first_offset)
            for index, log in enumerate(self.logs)
            for claim, first_offset in self.open_in(log)
        ]
        found = txn.recover(known, opened, restarted=True, now_ms=self.now_ms)
        self.producer = found.producers.get("t")
        for stray in found.strays:
            _, index = stray.opened.partition
            self.logs[index].entries.append(
                ("marker", stray.opened.claim.producer_id, stray.marker_epoch, False)
            )
            self.logs[index].sync()
        for index in PARTITIONS:
            self.sync_partition(index)
        self.queue_markers()

    @rule(passed_ms=st.integers(1, TIMEOUT_MS // 3))
    def time_passes(self, passed_ms):
        self.now_ms += passed_ms
        if self.producer is not None:
            self.take(txn.expire(self.producer, self.now_ms))

    # --- clients ------------------------------------------------------------------------------

    @rule(bumps=st.booleans())
    def new_instance(self, bumps):
        self.instances.append(Instance(len(self.instances), bumps))
        self.settle()
        for _ in range(2):  # the first may only abort what is ongoing
            self.send_initialize(self.instances[-1], None)
            self.settle()

    @precondition(lambda self: self.instances)
    @rule(data=st.data(), known=st.booleans())
    def initialize(self, data, known):
        instance = data.draw(st.sampled_from(self.instances))
        self.send_initialize(instance, instance.claim if known and not instance.gone else None)

    def send_initialize(self, instance, expected):
        request = InitRequest(transactional_id="t", timeout_ms=TIMEOUT_MS, expected=expected)
        verdict = txn.initialize(self.producer, request, SETTINGS, new_id=self.new_id(), now_ms=self.now_ms)
        if verdict.error not in (None, Code.NONE):
            assert expected is not None, "a new instance is never refused"
            instance.gone = True
            return
        self.take(verdict)
        if verdict.error is Code.NONE:
            claim = verdict.claim

            def answer():
                others = [each for each in self.instances if each is not instance and each.claim == claim]
                assert expected is not None or not others, "NewInstancesAreNew"
                instance.gone = False
                instance.next_transaction(claim)

            self.when_synced(answer)

    def some(self, data, choose):
        found = [each for each in self.instances if choose(each)]
        return data.draw(st.sampled_from(found)) if found else None

    @rule(data=st.data(), index=st.sampled_from(PARTITIONS))
    def add(self, data, index):
        instance = self.some(data, lambda each: each.idle and not each.bumps)
        if instance is not None and not self.unqueued():
            self.send_add(instance, index)

    def send_add(self, instance, index):
        verdict = txn.add(self.producer, instance.claim, partitions=[(TOPIC, index)], now_ms=self.now_ms)
        if verdict.error in GONE:
            instance.gone = True
        elif verdict.error is Code.NONE:
            self.take(verdict)
            serial = instance.serial
            self.when_synced(lambda: instance.serial == serial and instance.added.add(index))

    @rule(data=st.data(), index=st.sampled_from(PARTITIONS), number=st.integers(0, 3))
    def produce(self, data, index, number):
        instance = self.some(data, lambda each: each.idle and (each.bumps or index in each.added))
        if instance is not None and not self.unqueued():
            self.send_data(instance, index, number)

    def send_data(self, instance, index, number):
        partition = (TOPIC, index)
        if not instance.bumps:
            error = txn.missing(self.producer, instance.claim, partitions=frozenset([partition]))
            if error:
                assert error in GONE
                instance.gone = True
                return
        verdict = txn.add(self.producer, instance.claim, partitions=[partition], now_ms=self.now_ms)
        if verdict.error in GONE:
            instance.gone = True
        elif verdict.error is Code.NONE:
            self.take(verdict)
            entry = ("data", instance, instance.serial, instance.claim, number)
            if entry not in self.logs[index].entries:
                self.logs[index].entries.append(entry)
                instance.unacknowledged.add((index, number))
            instance.wrote = True

    @rule(data=st.data(), indexes=st.sets(st.sampled_from(PARTITIONS), min_size=2))
    def produce_to_many(self, data, indexes):
        """What most transactions do before they end."""
        instance = self.some(data, lambda each: each.idle)
        for index in sorted(indexes):
            if instance is not None and instance.idle and not self.unqueued():
                if not instance.bumps:
                    self.send_add(instance, index)
                    self.sync_journal()
                if instance.bumps or index in instance.added:
                    self.send_data(instance, index, 9)
                    self.sync_partition(index)

    @rule(data=st.data(), commit=st.booleans())
    def end(self, data, commit):
        instance = self.some(data, lambda each: each.idle and (each.wrote or each.added))
        if instance is None or (commit and instance.unacknowledged):
            return
        self.end_of(instance, commit)

    def end_of(self, instance, commit):
        instance.ending = commit
        self.sent_ends.append((instance, instance.serial, instance.claim, commit))
        self.send_end(instance, instance.serial, instance.claim, commit)

    @rule(data=st.data(), commit=st.booleans(), index=st.sampled_from(PARTITIONS))
    def end_and_go_on(self, data, commit, index):
        """The answer comes, and the next transaction begins while the last is being carried out."""
        self.end(data, commit)
        self.sync_journal()
        instance = self.some(data, lambda each: each.idle)
        if instance is not None and not self.unqueued():
            if not instance.bumps:
                self.send_add(instance, index)
                self.sync_journal()
            if instance.idle and (instance.bumps or index in instance.added):
                self.send_data(instance, index, 8)
                if data.draw(st.booleans()):
                    self.sync_partition(index)

    @rule(data=st.data(), commit=st.booleans(), index=st.sampled_from(PARTITIONS))
    def go_on_through_a_crash(self, data, commit, index):
        """A record of the next transaction is on disk, that the last was carried out is not."""
        instance = self.some(data, lambda each: each.idle and not each.unacknowledged)
        for how in (commit, not commit):
            if instance is None or not instance.idle or self.unqueued():
                return
            if not instance.bumps:
                self.send_add(instance, index)
                self.sync_journal()
            if instance.idle and (instance.bumps or index in instance.added):
                self.send_data(instance, index, 7)
                self.sync_partition(index)
            if how is commit:
                self.end_of(instance, how)
                self.sync_journal()
        self.crash(0, (0,) * len(PARTITIONS))
        self.settle()
        if instance.idle:
            self.end_of(instance, not commit)
            self.settle()

    @rule(data=st.data())
    def end_before_its_records(self, data):
        """A commit overtakes its records, as with Kafka's Java producer; it never succeeds without them."""
        instance = self.some(data, lambda each: each.idle and each.bumps and not each.wrote)
        if instance is not None and not self.producer.early:
            verdict = txn.end(
                self.producer,
                instance.claim,
                commit=True,
                bumps=True,
                new_id=self.new_id(),
                now_ms=self.now_ms,
            )
            assert verdict.error in {*GONE, Code.CONCURRENT_TRANSACTIONS} and not verdict.save
            instance.gone = verdict.error in GONE
            self.take(verdict)

    @rule(data=st.data())
    def repeat_end(self, data):
        instance = self.some(data, lambda each: not each.gone and each.ending is not None)
        if instance is not None:
            self.send_end(instance, instance.serial, instance.claim, instance.ending)

    @precondition(lambda self: any(sent[0].bumps for sent in self.sent_ends))
    @rule(data=st.data())
    def late_end(self, data):
        """An end of long ago arrives once more; what is ongoing under another epoch stays as it is."""
        sent = data.draw(st.sampled_from([each for each in self.sent_ends if each[0].bumps]))
        before = self.producer
        self.send_end(*sent)
        if before is not None and before.claim != sent[2]:
            assert self.producer == before

    def ends(self):
        ongoing = self.producer.ongoing
        touched = ongoing.partitions if ongoing is not None else ()
        return {(topic, index): len(self.logs[index].entries) for topic, index in touched}

    def send_end(self, instance, serial, claim, commit):
        if self.producer is None:
            return
        verdict = txn.end(
            self.producer,
            claim,
            commit=commit,
            bumps=instance.bumps,
            ends=None if instance.bumps else self.ends(),
            new_id=self.new_id(),
            now_ms=self.now_ms,
        )
        current = instance.serial == serial
        if verdict.error in GONE:
            instance.gone = instance.gone or current
        elif verdict.error is Code.NONE:
            self.take(verdict)
            following = verdict.claim

            def answer():
                key = (instance, serial)
                assert self.answered.setdefault(key, commit) == commit, "DecidedOnce"
                if instance.serial == serial:
                    instance.next_transaction(following)

            self.when_synced(answer)

    # --- invariants ---------------------------------------------------------------------------

    @invariant()
    def epochs_only_grow(self):
        if self.journal.entries and self.journal.synced == len(self.journal.entries):
            claim = self.producer.claim
            highest = self.highest.get(claim.producer_id, -1)
            assert claim.epoch >= highest, "EpochsOnlyGrow"
            self.highest[claim.producer_id] = claim.epoch

    @invariant()
    def nothing_is_torn(self):
        self.check_outcomes(self.outcomes())

    def outcomes(self):
        """(instance, serial) -> {(partition, number): committed}, of records with a marker behind them."""
        ended = defaultdict(dict)
        for index, log in enumerate(self.logs):
            opened = defaultdict(list)
            for entry in log.entries:
                if entry[0] == "data":
                    opened[entry[3].producer_id].append(entry)
                else:
                    for _, instance, serial, _, number in opened.pop(entry[1], ()):
                        ended[instance, serial][index, number] = entry[3]
        return ended

    def check_outcomes(self, ended):
        for key, records in ended.items():
            assert len(set(records.values())) == 1, "NoTornTransaction"
            if key in self.answered:
                assert set(records.values()) == {self.answered[key]}, "DecidedOnce"

    def teardown(self):
        self.crash(0, (0,) * len(PARTITIONS))
        self.settle()
        if self.producer is not None and self.producer.ongoing is not None:
            self.now_ms += TIMEOUT_MS
            self.take(txn.expire(self.producer, self.now_ms))
            self.settle()
        assert not any(self.open_in(log) for log in self.logs), "EverythingEnds"
        ended = self.outcomes()
        self.check_outcomes(ended)
        for key, commit in self.answered.items():
            if commit:
                assert self.acknowledged[key] <= ended[key].keys(), "CommittedMeansAll"

    def settle(self):
        for _ in range(2):
            self.sync_journal()
            for index in PARTITIONS:
                self.sync_partition(index)
            if self.producer is not None and self.producer.unfinished is not None:
                self.complete()


TestTransactionalLife = TransactionalLife.TestCase
TestTransactionalLife.settings = hypothesis_settings(
    max_examples=150, stateful_step_count=50, deadline=None, print_blob=True
)
