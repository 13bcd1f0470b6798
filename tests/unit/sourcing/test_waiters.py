"""Those who wait for answers: threads and coroutines, several for one command."""

import asyncio
from concurrent.futures import Future

import pytest

from headrace.errors import RetriableError
from headrace.sourcing.records import Answer
from headrace.sourcing.waiters import Waiters


def answer(entity, command):
    return Answer(command=command, entity=entity, outcome="accepted", version=1)


def test_all_who_wait_for_a_command_get_its_answer_and_nobody_else_does():
    waiters, first, second, other = Waiters(), Future(), Future(), Future()
    for entity, each in (("a-1", first), ("a-1", second), ("a-2", other)):
        waiters.add((entity, "c-1"), each)
    given = answer("a-1", "c-1")
    waiters.settle([(("a-1", "c-1"), given), (("a-1", "never sent"), given)])
    assert first.result(0) is given and second.result(0) is given
    assert not other.done() and waiters.any_for("c-1")
    waiters.settle([(("a-2", "c-1"), RetriableError("gone"))])
    with pytest.raises(RetriableError, match="gone"):
        other.result(0)
    assert not waiters.any_for("c-1")


def test_one_who_gives_up_takes_nobody_along():
    waiters, patient, impatient = Waiters(), Future(), Future()
    waiters.add(("a-1", "c-1"), patient)
    waiters.add(("a-1", "c-1"), impatient)
    waiters.drop(("a-1", "c-1"), impatient)
    waiters.drop(("a-1", "c-1"), impatient)
    waiters.settle([(("a-1", "c-1"), answer("a-1", "c-1"))])
    assert patient.done() and not impatient.done()


def test_coroutines_of_a_loop_are_woken_by_one_call():
    calls = []

    async def wait():
        loop, waiters = asyncio.get_running_loop(), Waiters()
        wake = loop.call_soon_threadsafe
        loop.call_soon_threadsafe = lambda *given: calls.append(given) or wake(*given)
        futures = [loop.create_future() for _ in range(5)]
        for number, each in enumerate(futures):
            waiters.add(("a-1", f"c-{number}"), each)
        futures[1].cancel()
        found = [(("a-1", f"c-{number}"), answer("a-1", f"c-{number}")) for number in range(5)]
        await asyncio.to_thread(waiters.settle, found)
        told = await asyncio.gather(*futures, return_exceptions=True)
        assert [each.command for each in told if isinstance(each, Answer)] == ["c-0", "c-2", "c-3", "c-4"]
        futures[:] = [loop.create_future()]
        waiters.add(("a-1", "c-9"), futures[0])
        waiters.settle_all(RetriableError("closed"))
        with pytest.raises(RetriableError, match="closed"):
            await futures[0]

    asyncio.run(wait())
    assert len([each for each in calls if "_settle_each" in str(each[0])]) == 2


def test_a_loop_that_is_closed_does_not_matter():
    waiters, loop, thread = Waiters(), asyncio.new_event_loop(), Future()
    waiters.add(("a-1", "c-1"), loop.create_future())
    waiters.add(("a-1", "c-1"), thread)
    loop.close()
    waiters.settle([(("a-1", "c-1"), answer("a-1", "c-1"))])
    assert thread.done()
