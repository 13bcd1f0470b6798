"""A transactional producer in bare frames, with what well-behaved clients never send.

It repeats ends, sends ends of earlier transactions while a later one is open, and lets
zombies speak: it takes its own transactional id over and then goes on as who it was. The
older protocol cannot tell an end of an earlier transaction of the same instance from one of
the open transaction (docs/explanation/transactions.md), so with that one ends are repeated only while
nothing new was begun.
"""

import itertools
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from clients.raw_transactions import RawProducer, Refused

from headrace.errors import RetriableError
from recorded.client import PARTITIONS, SOURCE, TIMEOUT_S, TRANSACTION_MS, Job

__all__ = ["run"]

T = TypeVar("T")
FENCED = (47, 90)  # INVALID_PRODUCER_EPOCH, PRODUCER_FENCED


class _Told(Exception):  # noqa: N818 - an order, not a fault
    """To end, while the broker is down."""


def run(job: Job) -> None:
    client = BareClient(job)
    try:
        client.take_over()
        for number in itertools.count():
            if not job.rest():
                return
            client.transaction(f"{job.process}/{number}")
    except Refused as error:
        if error.code in FENCED:
            client.recorder.info("fenced", instance=client.instance, why=str(error))
        else:
            client.recorder.info("refused", why=str(error))
    except _Told:
        return


class BareClient:
    """Speaks as one instance after another of one transactional id."""

    def __init__(self, job: Job) -> None:
        self.recorder = job.recorder()
        self.instance = ""
        self._job = job
        self._choices = job.choices()
        self._bumps = bool(job.settings["bumps"])
        self._instances = itertools.count()
        self._raw = self._producer()
        self._ended: dict[str, object] | None = None

    def _producer(self) -> RawProducer:
        job = self._job
        return RawProducer(job.port, job.name, bumps=self._bumps, timeout_ms=TRANSACTION_MS)

    def take_over(self) -> None:
        self.instance = f"{self._job.process}#{next(self._instances)}"
        self.recorder.invoke("init", instance=self.instance, txid=self._job.name)
        self._insist(self._raw.init)
        self.recorder.ok("init", instance=self.instance, txid=self._job.name)

    def transaction(self, name: str) -> None:
        """Records in two to four partitions, and an end; or a successor in the midst of it."""
        self.recorder.invoke("begin", txn=name, instance=self.instance)
        partitions = self._choices.sample(range(PARTITIONS), self._choices.randint(2, PARTITIONS))
        for n, partition in enumerate(partitions):
            self._send(partition, f"{name}/{n}", name)
            if n == 0 and self._bumps and self._choices.random() < 0.5:
                self._send_stale_ends()
        if self._choices.random() < 0.1:
            self._be_succeeded(name)
            return
        commit = self._choices.random() < 0.8
        self._ended = self._raw.claim
        self.recorder.invoke("end", txn=name, commit=commit)
        self._insist(partial(self._raw.end, commit=commit))
        self.recorder.ok("end", txn=name, commit=commit)
        if self._choices.random() < 0.3:
            self._repeat_end(commit)

    def _send(self, partition: int, value: str, name: str) -> None:
        self.recorder.invoke("send", topic=SOURCE, partition=partition, value=value, txn=name)
        offset = self._insist(partial(self._raw.send, SOURCE, partition, value.encode()))
        self.recorder.ok("send", value=value, offset=offset)

    def _insist(self, call: Callable[[], T]) -> T:
        """Repeats a request that got no answer as it was."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                return call()
            except RetriableError:
                if self._job.stopping or time.monotonic() > deadline:
                    raise _Told from None
                time.sleep(0.01)  # it is down

    # --- what well-behaved clients never do

    def _repeat_end(self, commit: bool) -> None:
        """The same end once more; its answer must be the same."""
        assert self._ended is not None
        self._insist(partial(self._raw.repeat_end, self._ended, commit=commit))

    def _send_stale_ends(self) -> None:
        """Ends of the transaction before, either way, from somewhere else: the open one must not notice."""
        if self._ended is None:
            return
        stranger = RawProducer(self._job.port, self._job.name, bumps=True)
        for commit in (True, False):
            self._say(partial(stranger.repeat_end, self._ended, commit=commit), "stale end")
        stranger.close()

    def _be_succeeded(self, name: str) -> None:
        """A new instance takes over; the former one goes on to send and to commit, and must not succeed."""
        former, was = self._raw, self.instance
        self._raw = self._producer()
        self.take_over()
        self._ended = None
        value = f"{name}/zombie"
        self.recorder.invoke("send", topic=SOURCE, partition=0, value=value, txn=name)
        offset = self._say(partial(former.produce, SOURCE, 0, value.encode()), "zombie's record")
        if offset is not None:
            self.recorder.ok("send", value=value, offset=offset)
        self.recorder.invoke("end", txn=name, commit=True)
        if self._say(partial(former.repeat_end, former.claim, commit=True), "zombie's end") is None:
            self.recorder.info("end", txn=name, why=f"{was} was succeeded")
        former.close()

    def _say(self, call: Callable[[], T], what: str) -> T | None:
        """Says it once, whether or not anybody answers; None if it was refused."""
        try:
            answer = call()
        except (Refused, RetriableError) as error:
            self.recorder.info("mischief", what=what, why=str(error))
            return None
        self.recorder.info("mischief", what=what, why="accepted")
        return answer
