"""A broker whose machine stops at each step that changes its disk, around transactions of both protocols.

One application commits, aborts and commits: a value to each of two partitions and a
group's offset in every transaction. The machine stops at a chosen step: whoever waits
for the disk waits for ever, and what the application has been told by then is what it
knows. The disk is then found as a kill or a power cut leaves it, and a broker started on
it, whose machine may stop as well. The application repeats the request that was not
answered, or starts anew (InitProducerId) and goes on where its group's offset says. Named
invariants: AllOrNothing, EachOnce, CommittedIsKept, AbortedIsGone, NothingStaysOpen.
The seed and the step are in every failure's message; `HEADRACE_CRASH_SEED` repeats a run.
"""

import contextlib
import errno
import functools
import gc
import itertools
import logging
import os
import random
import select
import threading
import time
from collections import deque
from functools import partial
from pathlib import Path

import pytest
from clients.raw_transactions import RawProducer

from headrace.client.connect.channel import Channel
from headrace.records import decode_batch
from headrace.testing.batches import batches_in
from headrace.testing.broker import running_broker
from headrace.testing.disk import Crash, SimulatedDisk
from headrace.wire import Api, ErrorCode

DATA = Path("data")  # below the root of a simulated disk, which is always there
TOPIC, GROUP = "t", "g"
COMMITS = (True, False, True)  # what becomes of the transactions 0, 1 and 2
FOLLOWING = len(COMMITS)  # one more, when all is over
PATIENCE_S = 240
AFTERMATHS = ("kill", "power cut", "power cut that leaves a part")
SECOND_LIFE = 60  # steps: recovery, and a part of what follows
PROTOCOLS = pytest.mark.parametrize("bumps", [False, True], ids=["version 1", "version 2"])


@pytest.fixture(autouse=True)
def silence():
    """What brokers say that lose their disk is no news, nor what the collector finds of them later."""
    logging.disable()
    yield
    gc.collect()
    logging.disable(logging.NOTSET)


class Stopped(Exception):  # noqa: N818 - what happened
    """The broker's machine stopped before it answered."""


class Machine(SimulatedDisk):
    """A disk that its users do not outlive: from the crash on nothing is changed and nobody is answered.

    With `alone` set nobody is there to be told anything, and a broker that starts or
    ends hears of errors instead. Safe on any thread.
    """

    def __init__(self):
        super().__init__()
        self.turn = threading.RLock()
        self.alone = threading.Event()
        self.alone.set()
        self.has_stopped = False
        self.noticed, self.notice = os.pipe()

    def discard(self):
        os.close(self.noticed)
        os.close(self.notice)


def until_it_stops(method):
    @functools.wraps(method)
    def call(machine, *args, **named):
        with machine.turn:
            if not machine.has_stopped:
                try:
                    return method(machine, *args, **named)
                except Crash:
                    machine.has_stopped = True
                    os.write(machine.notice, b"!")
            machine.alone.wait()
        raise OSError(errno.EIO, "the machine has stopped")

    return call


READS = ("pread", "pread_into", "size", "read_file", "list", "exists")
CHANGES = ("open", "pwritev", "sync", "truncate", "lock", "sync_directory", "rename", "unlink", "mkdir")
for name in (*READS, *CHANGES, "remove_tree"):
    setattr(Machine, name, until_it_stops(getattr(SimulatedDisk, name)))


class Client(RawProducer):
    """Waits for answers until the machine of the broker stops."""

    def __init__(self, *, bumps):
        super().__init__(0, "application", bumps=bumps)

    def meet(self, port, machine):
        """A broker is there, again."""
        self.close()
        self._port, self._machine = port, machine

    def request(self, api, version, fields):
        if self._channel is None:
            self._channel = Channel("127.0.0.1", self._port, client_id=self.name, timeout_ms=20_000)
        channel = self._channel
        channel.ask(api, version, fields)
        ready, _, _ = select.select([channel._socket, self._machine.noticed], [], [], PATIENCE_S)
        assert ready, f"no answer to {api.name}"
        if channel._socket not in ready:
            self.close()
            raise Stopped
        return channel.answer(api, version)


class Application:
    """Transactions deed by deed; one that got no answer is still the next to do."""

    def __init__(self, *, bumps):
        self.bumps = bumps
        self.asked, self.told = set(), set()  # transactions to commit, and those that are
        self.start_anew()

    def start_anew(self):
        """As a process that knows nothing but what the log says."""
        self.client = Client(bumps=self.bumps)
        self.deeds = deque([self.client.init, self.look])

    def look(self):
        """Nothing is open after InitProducerId; what is there says which transaction is next."""
        found = settled(self.client)
        check(found, self)
        for number in range(max(found.offset, 0), len(COMMITS)):
            self.plan(number, commit=COMMITS[number])

    def plan(self, number, *, commit):
        value = b"%d" % number
        self.deeds += [
            partial(self.client.send, TOPIC, 0, value),
            partial(self.client.send, TOPIC, 1, value),
            partial(self.client.send_offset, GROUP, TOPIC, 0, number + 1),
            partial(self.end, number, commit),
        ]

    def end(self, number, commit):
        if commit:
            self.asked.add(number)
        self.client.end(commit=commit)
        if commit:
            self.told.add(number)

    def go_on(self):
        while self.deeds:
            self.deeds[0]()
            self.deeds.popleft()


# --- what readers see -----------------------------------------------------------------------------


class Found:
    """What readers of committed records are given of each partition, and the group's offset."""

    def __init__(self, partitions, offset):
        self.partitions, self.offset = partitions, offset

    def __repr__(self):
        return f"{self.partitions} and offset {self.offset}"


def read_committed(client, index):
    """Numbers of the transactions in a partition, in the order of its log; and whether none is open."""
    part = {"partition": index, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    fields = {
        "max_wait": 0,
        "isolation_level": 1,
        "topics": [{"topic": TOPIC, "partitions": [part]}],
    }
    answer = client.request(Api.FETCH, 11, fields).responses[0].partitions[0]
    assert answer.error_code == 0
    aborted = deque(sorted((each.first_offset, each.producer_id) for each in answer.aborted_transactions))
    data, void, numbers = bytes(answer.records or b""), set(), []
    for position, header in batches_in(data):
        while aborted and aborted[0][0] < header.next_offset:
            void.add(aborted.popleft()[1])
        if header.is_control:
            void.discard(header.producer_id)
        elif header.producer_id not in void:
            numbers += [int(record.value) for record in decode_batch(data, position)]
    return numbers, answer.last_stable_offset == answer.high_watermark


def group_offset(client):
    """The group's offset, -1 if it has none; None while a transaction has another for it."""
    asked = {"group_id": GROUP, "topics": [{"name": TOPIC, "partition_indexes": [0]}]}
    answer = client.request(Api.OFFSET_FETCH, 8, {"groups": [asked], "require_stable": True})
    found = answer.groups[0].topics[0].partitions[0]
    if found.error_code == ErrorCode.unstable_offset_commit:
        return None
    assert found.error_code == 0
    return found.committed_offset


def settled(client):
    """What is found once every transaction has ended; NothingStaysOpen: that comes about by itself."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        partitions = [read_committed(client, index) for index in range(2)]
        offset = group_offset(client)
        if all(stable for _, stable in partitions) and offset is not None:
            return Found([numbers for numbers, _ in partitions], offset)
        assert time.monotonic() < deadline, f"NothingStaysOpen: {partitions} and offset {offset}"


def check(found, application):
    first, second = found.partitions
    assert first == second, f"AllOrNothing: {found}"
    assert found.offset == max(first, default=-2) + 1, f"AllOrNothing: {found}"
    assert first == sorted(set(first)), f"EachOnce: {found}"
    assert application.told <= set(first), f"CommittedIsKept: {found}, and {application.told} were told"
    assert set(first) <= application.asked, f"AbortedIsGone: {found}, and {application.asked} were asked for"


# --- lives and deaths -----------------------------------------------------------------------------


def live(machine, deed):
    """Starts a broker and does `deed(port)`, until that is done or the machine stops."""
    problem = None
    try:
        with running_broker(DATA, disk=machine) as broker:
            machine.alone.clear()
            try:
                deed(broker.port)
            except Stopped:
                pass
            except BaseException as error:
                problem = error
            machine.alone.set()
    except BaseException:
        if not machine.has_stopped and problem is None:
            raise
    finally:
        machine.discard()
    if problem is not None:
        raise problem


def work(machine, application):
    def deed(port):
        application.client.meet(port, machine)
        for index in range(2):
            glimpsed, _ = read_committed(application.client, index)
            assert set(glimpsed) <= application.asked, f"read before its commit: {glimpsed}"
        application.go_on()
        settled(application.client)  # the last steps are of markers, for which nobody waits

    live(machine, deed)
    application.client.close()


def finish(machine, application):
    """The rest of the work, and one transaction more; all as if nothing had been."""

    def deed(port):
        application.client.meet(port, machine)
        application.go_on()
        application.plan(FOLLOWING, commit=True)
        application.go_on()
        found = settled(application.client)
        check(found, application)
        assert (found.partitions[0], found.offset) == ([0, 2, FOLLOWING], FOLLOWING + 1), found

    live(machine, deed)
    application.client.close()


def found_after(machine, aftermath, choices):
    if aftermath == "kill":
        return machine.after_kill()
    return machine.after_power_cut(choices if aftermath == "power cut that leaves a part" else None)


@functools.cache
def fresh_disk():
    """A broker's first start, and a topic of two partitions."""
    machine = Machine()

    def deed(port):
        with contextlib.closing(Channel("127.0.0.1", port, client_id="test", timeout_ms=20_000)) as channel:
            wanted = {"name": TOPIC, "num_partitions": 2, "replication_factor": 1, "configs": []}
            (answer,) = channel.request(Api.CREATE_TOPICS, 7, {"topics": [wanted]}).topics
            assert answer.error_code == 0

    live(machine, deed)
    return machine


def fresh_machine():
    return fresh_disk().after_power_cut()


def crash(step, *, bumps, aftermath, anew, seed):
    """A life that ends at a step, and how it goes on, on what is left.

    Now and then another life ends before the last: in its recovery, or in what follows.
    """
    choices = random.Random(f"{seed} {step} {bumps} {aftermath} {anew}")
    machine, application = fresh_machine(), Application(bumps=bumps)
    machine.crash_at = step
    work(machine, application)
    story = f"{aftermath} at {step} ({machine.log[-1:]}), {'starts anew' if anew else 'repeats'}"
    if anew:
        application.start_anew()
    try:
        machine = found_after(machine, aftermath, choices)
        if choices.random() < 0.25:
            machine.crash_at = choices.randrange(SECOND_LIFE)
            work(machine, application)
            again = choices.choice(AFTERMATHS)
            story += f"; {again} at {machine.steps} ({machine.log[-1:]}), repeats"
            machine = found_after(machine, again, choices)
        finish(machine, application)
    except Exception as error:
        raise AssertionError(f"HEADRACE_CRASH_SEED={seed} {bumps=}: {story}") from error


def steps_of_a_whole_life(*, bumps):
    machine = fresh_machine()
    work(machine, Application(bumps=bumps))
    return range(machine.steps)


def chosen_seed():
    seed = int(os.environ.get("HEADRACE_CRASH_SEED", random.randrange(2**31)))
    print(f"HEADRACE_CRASH_SEED={seed}")
    return seed


@PROTOCOLS
def test_no_transaction_is_torn_by_a_crash_at_any_step(bumps):
    seed = chosen_seed()
    choices = random.Random(seed)
    for step in steps_of_a_whole_life(bumps=bumps):
        aftermath, anew = choices.choice(AFTERMATHS), choices.random() < 0.5
        crash(step, bumps=bumps, aftermath=aftermath, anew=anew, seed=seed)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@PROTOCOLS
def test_no_transaction_is_torn_by_any_crash_at_any_step_however_its_producer_goes_on(bumps):
    seed = chosen_seed()
    steps = steps_of_a_whole_life(bumps=bumps)
    for each in range(seed, seed + 4):
        for step, aftermath, anew in itertools.product(steps, AFTERMATHS, (False, True)):
            crash(step, bumps=bumps, aftermath=aftermath, anew=anew, seed=each)
