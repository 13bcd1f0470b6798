import asyncio
import json

import pytest

from headrace.console.sharing import Shared
from headrace.console.streaming import HEARTBEAT, Event
from headrace.console.watching import Watch
from headrace.errors import RetriableError


def test_an_event_is_one_block_whatever_line_breaks_its_json_has():
    text = Event("records", b'{"a":\r\n [1,\n2]}', "0:7").as_text().decode()
    assert text == 'event: records\nid: 0:7\ndata: {"a":   [1, 2]}\n\n'


def test_a_sign_of_life_is_a_comment():
    assert HEARTBEAT.as_text().startswith(b":")


def test_a_message_is_the_same_event_as_one_object():
    assert json.loads(Event("records", b'{"a":1}', "0:7").as_message()) == {
        "id": "0:7",
        "event": "records",
        "a": 1,
    }
    assert json.loads(Event("end", b"{}", "").as_message()) == {"id": "", "event": "end"}


def test_what_many_ask_at_once_is_read_once():
    async def run():
        shared, reads = Shared(), []

        async def read():
            reads.append(1)
            await asyncio.sleep(0)
            return len(reads)

        assert await asyncio.gather(*(shared.get("7", read) for _ in range(10))) == [1] * 10
        assert await shared.get("8", read) == 2

    asyncio.run(run())


def test_one_who_leaves_takes_nothing_from_the_others():
    async def run():
        shared, go = Shared(), asyncio.Event()

        async def read():
            await go.wait()
            return "found"

        first = asyncio.create_task(shared.get("7", read))
        second = asyncio.create_task(shared.get("7", read))
        await asyncio.sleep(0)
        first.cancel()
        go.set()
        assert await second == "found"

    asyncio.run(run())


def test_a_failure_is_not_kept():
    async def run():
        shared = Shared()

        async def fail():
            raise RetriableError("away")

        async def read():
            return 1

        with pytest.raises(RetriableError):
            await shared.get("7", fail)
        assert await shared.get("7", read) == 1

    asyncio.run(run())


def test_a_watch_looks_only_while_somebody_follows_and_wakes_all_of_them():
    async def run():
        looks, value = [], 1

        async def look():
            looks.append(1)
            return value

        watch = Watch(look, 0.001)
        assert watch.version == 0
        async with watch.following(), watch.following():
            version = watch.version
            waiting = [asyncio.create_task(watch.wait_change(version, 30)) for _ in range(3)]
            await asyncio.sleep(0)
            value = 2
            assert await asyncio.gather(*waiting) == [True] * 3
            assert watch.value == 2
        seen = len(looks)
        await asyncio.sleep(0.02)
        assert len(looks) <= seen + 1

    asyncio.run(run())


def test_a_watch_survives_a_look_that_fails():
    async def run():
        failing = [True, True, False]

        async def look():
            if failing.pop(0) if failing else False:
                raise RetriableError("away")
            return "here"

        watch = Watch(look, 0.001)
        async with watch.following():
            assert isinstance(watch.failure, RetriableError)
            assert await watch.wait_change(watch.version, 30)
            assert (watch.value, watch.failure) == ("here", None)

    asyncio.run(run())


def test_whoever_waits_is_woken_when_the_console_ends():
    async def run():
        async def look():
            return 1

        watch = Watch(look, 60)
        async with watch.following():
            waiting = asyncio.create_task(watch.wait_change(watch.version, 60))
            await asyncio.sleep(0)
            watch.wake()
            assert await waiting is False

    asyncio.run(run())
