"""Where commits run: small lone ones on the loop, the others on threads; in order, errors included."""

import asyncio
import threading

import pytest

from headrace.broker.log.committer import SLOW_S, SMALL_BYTES, Committer, LoopTurns
from headrace.errors import DiskError

LARGE_BYTES = SMALL_BYTES + 1


class Work:
    """Something to commit; notes on which thread that happened."""

    def __init__(self, commit, pending_bytes=LARGE_BYTES):
        self._commit = commit
        self.pending_bytes = pending_bytes
        self.thread = None

    def commit(self):
        self.thread = threading.current_thread()
        return self._commit()


async def outcome_of(committer, work):
    done = asyncio.get_running_loop().create_future()
    committer.run(work, lambda *outcome: done.set_result((*outcome, threading.current_thread())))
    assert not done.done()
    return await asyncio.wait_for(done, 60)


@pytest.fixture
def committer():
    committer = Committer(2)
    yield committer
    committer.close()


def test_a_large_commit_runs_on_a_thread_and_its_outcome_comes_back_on_the_loop(committer):
    work = Work(lambda: 7)
    assert asyncio.run(outcome_of(committer, work)) == (7, None, threading.main_thread())
    assert work.thread is not threading.main_thread()


def test_a_small_commit_with_nothing_else_under_way_runs_on_the_loop(committer):
    work = Work(lambda: 7, pending_bytes=SMALL_BYTES)
    assert asyncio.run(outcome_of(committer, work)) == (7, None, threading.main_thread())
    assert work.thread is threading.main_thread()


def test_a_small_commit_that_is_alone_is_over_before_run_returns(committer):
    work, outcomes = Work(lambda: 7, pending_bytes=SMALL_BYTES), []

    async def alone():
        committer.run(work, lambda *outcome: outcomes.append(outcome), alone=True)
        return list(outcomes)

    assert asyncio.run(alone()) == [(7, None)]
    assert work.thread is threading.main_thread()


@pytest.mark.parametrize(("pending_bytes", "urgent"), [(LARGE_BYTES, True), (1, False)])
def test_a_commit_that_is_alone_but_large_or_not_urgent_runs_on_a_thread(committer, pending_bytes, urgent):
    work = Work(lambda: 7, pending_bytes=pending_bytes)

    async def alone():
        done = asyncio.get_running_loop().create_future()
        committer.run(work, lambda *outcome: done.set_result(outcome), urgent=urgent, alone=True)
        return await asyncio.wait_for(done, 60)

    assert asyncio.run(alone()) == (7, None)
    assert work.thread is not threading.main_thread()


def test_a_small_commit_beside_another_runs_on_a_thread(committer):
    begun, go_on = threading.Event(), threading.Event()
    slow = Work(lambda: begun.set() or go_on.wait(60) or 1)
    small = Work(go_on.set, pending_bytes=1)

    async def both():
        first = asyncio.ensure_future(outcome_of(committer, slow))
        await asyncio.to_thread(begun.wait, 60)
        await outcome_of(committer, small)
        await first

    asyncio.run(both())
    assert small.thread is not threading.main_thread()


def test_two_small_commits_that_come_together_run_on_threads(committer):
    works = [Work(lambda: 1, pending_bytes=1), Work(lambda: 2, pending_bytes=1)]

    async def both():
        await asyncio.gather(*(outcome_of(committer, work) for work in works))

    asyncio.run(both())
    assert threading.main_thread() not in {work.thread for work in works}


@pytest.mark.parametrize("pending_bytes", [1, LARGE_BYTES])
def test_an_error_is_an_outcome_and_the_next_commit_runs(committer, pending_bytes):
    def refuse():
        raise DiskError("no disk")

    async def twice():
        failed = await outcome_of(committer, Work(refuse, pending_bytes))
        return failed, await outcome_of(committer, Work(lambda: 1, pending_bytes))

    (watermark, error, _), (later, none, _) = asyncio.run(twice())
    assert (watermark, str(error), later, none) == (-1, "no disk", 1, None)


def test_as_many_commits_run_at_once_as_there_may_be_threads(committer):
    both, third = threading.Barrier(2, timeout=60), threading.Event()

    async def three():
        works = [Work(both.wait), Work(both.wait), Work(third.set)]
        return await asyncio.gather(*(outcome_of(committer, work) for work in works))

    assert [error for _, error, _ in asyncio.run(three())] == [None, None, None]
    assert third.is_set()
    assert len(committer._threads) == 2


def test_one_commit_after_the_other_needs_one_thread(committer):
    async def often():
        for number in range(20):
            assert (await outcome_of(committer, Work(lambda number=number: number)))[0] == number

    asyncio.run(often())
    assert len(committer._threads) == 1


def test_what_follows_a_commit_runs_on_a_thread_and_does_not_keep_the_next_one_from_the_loop(committer):
    begun, go_on, threads = threading.Event(), threading.Event(), []

    def behind():
        threads.append(threading.current_thread())
        begun.set()
        go_on.wait(60)

    async def both():
        done = asyncio.Event()
        committer.run_on_thread(behind, done.set)
        await asyncio.to_thread(begun.wait, 60)
        work = Work(lambda: 7, pending_bytes=1)
        await outcome_of(committer, work)
        assert not done.is_set()
        go_on.set()
        await asyncio.wait_for(done.wait(), 60)
        return work.thread

    assert asyncio.run(both()) is threading.main_thread()
    assert threads != [threading.main_thread()]


def test_what_fails_behind_a_commit_is_logged_and_over(committer, caplog):
    async def fail():
        done = asyncio.Event()
        committer.run_on_thread(lambda: 1 // 0, done.set)
        await asyncio.wait_for(done.wait(), 60)

    asyncio.run(fail())
    assert "ZeroDivisionError" in caplog.text


def test_the_loop_waits_for_a_fast_disk_four_fifths_of_its_time():
    turns = LoopTurns()
    assert turns.may_begin(10.0)
    turns.ended(10.0, 10.0 + SLOW_S * 0.8, here=True)
    assert not turns.may_begin(10.0 + SLOW_S * 0.95)
    assert turns.may_begin(10.0 + SLOW_S * 1.05)
    turns.ended(20.0, 20.0 + SLOW_S / 2, here=False)
    assert turns.may_begin(20.0 + SLOW_S / 2)


def test_a_commit_that_its_caller_runs_counts_only_if_somebody_waited_for_its_end(committer):
    assert committer.may_run_here
    for _ in range(3):
        committer.was_awaited_here(SLOW_S / 2)
    assert committer.may_run_here
    for _ in range(3):
        committer.was_awaited_here(9.0)
    assert not committer.may_run_here


def test_the_loop_waits_for_a_disk_that_is_slow_once_and_not_for_one_that_is_slow():
    turns = LoopTurns()
    turns.ended(10.0, 19.0, here=True)
    assert turns.may_begin(30.0)
    for _ in range(3):
        turns.ended(40.0, 49.0, here=False)
    assert not turns.may_begin(1000.0)
    for _ in range(10):
        turns.ended(50.0, 50.0 + SLOW_S / 4, here=False)
    assert turns.may_begin(1000.0)
