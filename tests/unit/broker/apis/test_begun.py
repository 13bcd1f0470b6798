"""A coroutine that is begun where it is made, and waited for if it has to wait."""

import asyncio
import gc
import weakref

import pytest

from headrace.broker.apis.answers import Begun, begin


class FailedError(Exception):
    pass


async def outcome_of(future):
    return "got " + await future


def test_what_need_not_wait_is_done_at_once():
    async def answer():
        return 42

    assert begin(answer()) == 42


def test_what_fails_before_it_waits_fails_at_once():
    async def fail():
        raise FailedError

    with pytest.raises(FailedError):
        begin(fail())


def test_what_waits_goes_on_when_it_is_awaited():
    async def run():
        first, second = (asyncio.get_running_loop().create_future() for _ in range(2))

        async def both():
            return await first + await second

        begun = begin(both())
        assert isinstance(begun, Begun)
        asyncio.get_running_loop().call_soon(first.set_result, 1)
        asyncio.get_running_loop().call_soon(second.set_result, 2)
        assert await begun == 3

    asyncio.run(run())


def test_what_it_waited_for_may_be_there_before_it_is_awaited():
    async def run():
        future = asyncio.get_running_loop().create_future()
        begun = begin(outcome_of(future))
        future.set_result("it")
        await asyncio.sleep(0)
        assert await begun == "got it"

    asyncio.run(run())


def test_a_failure_reaches_it_and_is_kept_by_nobody():
    async def run():
        waiting = [asyncio.get_running_loop().create_future()]

        async def careful():
            try:
                return await waiting[0]
            except FailedError:
                return "failed"

        begun, error = begin(careful()), FailedError()
        seen = weakref.ref(error)
        asyncio.get_running_loop().call_soon(waiting[0].set_exception, error)
        del error
        assert await begun == "failed"
        waiting.clear()
        return seen, begun

    gc.disable()
    try:
        seen, _ = asyncio.run(run())
        assert seen() is None
    finally:
        gc.enable()


def test_cancelling_whoever_awaits_it_cancels_it():
    cleaned = []

    async def run():
        async def careful():
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                cleaned.append("up")

        begun = begin(careful())

        async def wait():
            await begun

        task = asyncio.create_task(wait())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert cleaned == ["up"]


def test_one_that_nobody_awaits_is_closed_where_it_waits():
    cleaned = []

    async def run():
        async def careful():
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                cleaned.append("up")

        begin(careful()).close()

    asyncio.run(run())
    assert cleaned == ["up"]
