"""The hand-over of commits to threads: in order, bounded, errors included."""

import asyncio
import threading

import pytest

from headrace.broker.committer import Committer
from headrace.errors import DiskError


async def outcome_of(committer, commit):
    done = asyncio.get_running_loop().create_future()
    committer.run(commit, lambda *outcome: done.set_result((*outcome, threading.current_thread())))
    return await asyncio.wait_for(done, 10)


@pytest.fixture
def committer():
    committer = Committer(2)
    yield committer
    committer.close()


def test_a_commit_runs_on_a_thread_and_its_outcome_comes_back_on_the_loop(committer):
    ran_on = []

    def commit():
        ran_on.append(threading.current_thread())
        return 7

    assert asyncio.run(outcome_of(committer, commit)) == (7, None, threading.main_thread())
    assert ran_on[0] is not threading.main_thread()


def test_an_error_is_an_outcome_and_the_thread_goes_on(committer):
    async def twice():
        def refuse():
            raise DiskError("no disk")

        failed = await outcome_of(committer, refuse)
        return failed, await outcome_of(committer, lambda: 1)

    (watermark, error, _), (later, none, _) = asyncio.run(twice())
    assert (watermark, str(error), later, none) == (-1, "no disk", 1, None)


def test_as_many_commits_run_at_once_as_there_may_be_threads(committer):
    both, third = threading.Barrier(2, timeout=10), threading.Event()

    async def three():
        commits = [lambda: both.wait() and 0, lambda: both.wait() and 0, lambda: third.set() or 3]
        return await asyncio.gather(*(outcome_of(committer, commit) for commit in commits))

    assert [error for _, error, _ in asyncio.run(three())] == [None, None, None]
    assert third.is_set()
    assert len(committer._threads) == 2


def test_one_commit_after_the_other_needs_one_thread(committer):
    async def often():
        for number in range(20):
            assert (await outcome_of(committer, lambda number=number: number))[0] == number

    asyncio.run(often())
    assert len(committer._threads) == 1
