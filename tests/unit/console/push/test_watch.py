import asyncio

from headrace.console.push.watch import Watch
from headrace.errors import RetriableError


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
