import asyncio

import pytest

from headrace.console.push.event_stream import StreamEvent
from headrace.console.push.read_cache import ReadCache, ReadCaches
from headrace.errors import RetriableError


def test_what_many_ask_at_once_is_read_once():
    async def run():
        cache, reads = ReadCache(), []

        async def read():
            reads.append(1)
            await asyncio.sleep(0)
            return len(reads)

        assert await asyncio.gather(*(cache.get("7", read) for _ in range(10))) == [1] * 10
        assert await cache.get("8", read) == 2

    asyncio.run(run())


def test_one_who_leaves_takes_nothing_from_the_others():
    async def run():
        cache, go = ReadCache(), asyncio.Event()

        async def read():
            await go.wait()
            return "found"

        first = asyncio.create_task(cache.get("7", read))
        second = asyncio.create_task(cache.get("7", read))
        await asyncio.sleep(0)
        first.cancel()
        go.set()
        assert await second == "found"

    asyncio.run(run())


def test_a_failure_is_not_kept():
    async def run():
        cache = ReadCache()

        async def fail():
            raise RetriableError("away")

        async def read():
            return 1

        with pytest.raises(RetriableError):
            await cache.get("7", fail)
        assert await cache.get("7", read) == 1

    asyncio.run(run())


def test_what_is_shared_is_bounded_in_bytes():
    async def run():
        caches = ReadCaches(most=16, most_bytes=10_000)

        async def read(body):
            return StreamEvent("records", body, "7")

        for number in range(16):
            cache = caches.of((str(number),))
            for place in "12":
                await cache.get(place, lambda: read(b"{" + b" " * 2_000 + b"}"))
                await asyncio.sleep(0)
        assert sum(each.size for each in caches._caches.values()) <= 10_000 + cache.size

    asyncio.run(run())
