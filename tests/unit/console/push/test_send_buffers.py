"""Bytes on their way to readers, counted: what many are sent once, and never more than the bound."""

import asyncio
import sys

from headrace.console.push.event_stream import EventStream, StreamEvent, Subscriptions, _send_messages
from headrace.console.push.send_buffers import FULL, ClientConnection, SendBuffers

PIECE = 100


class Slow:
    """A reader that takes so many pieces and then no more, until it is cut."""

    def __init__(self, send_buffers, takes=0):
        self.gone = asyncio.Event()
        self.takes = takes
        self.pieces = []
        self.reader = send_buffers.open(ClientConnection(lambda: 0, self.gone.set))

    async def take(self, piece, is_last):
        if len(self.pieces) >= self.takes:
            await self.gone.wait()
        else:
            self.pieces.append((bytes(piece), is_last))


async def settled():
    for _ in range(10):
        await asyncio.sleep(0)


def test_a_body_goes_in_pieces_and_the_last_is_told():
    async def run():
        slow = Slow(SendBuffers(10_000, PIECE), takes=9)
        await slow.reader.send(b"x" * 250, slow.take)
        assert [(len(piece), is_last) for piece, is_last in slow.pieces] == [
            (100, False),
            (100, False),
            (50, True),
        ]
        assert slow.reader.send_buffers.held_bytes == 0

    asyncio.run(run())


def test_what_a_hundred_readers_are_sent_at_once_counts_once():
    async def run():
        send_buffers, body = SendBuffers(5_000, PIECE), bytes(1_000)
        slow = [Slow(send_buffers, takes=1) for _ in range(100)]
        tasks = [asyncio.create_task(each.reader.send(body, each.take)) for each in slow]
        await settled()
        assert send_buffers.held_bytes == 1_000
        assert send_buffers.cut[FULL] == 0
        for each in slow:
            each.reader.cut()
        await asyncio.gather(*tasks)
        assert send_buffers.held_bytes == 0

    asyncio.run(run())


def test_a_hundred_readers_of_different_bodies_never_hold_more_than_the_bound():
    async def run():
        send_buffers, most = SendBuffers(5_000, PIECE), 0
        slow = [Slow(send_buffers) for _ in range(100)]
        tasks = []
        for number, each in enumerate(slow):
            tasks.append(asyncio.create_task(each.reader.send(bytes([number]) * 1_000, each.take)))
            await settled()
            most = max(most, send_buffers.held_bytes)
        assert most == 5_000
        assert send_buffers.cut[FULL] == 95
        # Those who have waited longest went.
        assert [each.gone.is_set() for each in slow] == [True] * 95 + [False] * 5
        for each in slow:
            each.reader.cut()
        await asyncio.gather(*tasks)

    asyncio.run(run())


def test_one_that_takes_what_it_is_sent_stays_when_others_do_not():
    async def run():
        send_buffers = SendBuffers(2_500, PIECE)
        loop = asyncio.get_running_loop()
        quick, seen = Slow(send_buffers), []

        async def take(piece, is_last):
            seen.append(len(piece))
            began = loop.time()
            while loop.time() == began:  # noqa: ASYNC110 - the clock, which calls nobody
                await asyncio.sleep(0)

        slow = [Slow(send_buffers) for _ in range(20)]
        tasks = [asyncio.create_task(quick.reader.send(b"q" * 2_000, take))]
        for number, each in enumerate(slow):
            tasks.append(asyncio.create_task(each.reader.send(bytes([number]) * 500, each.take)))
            taken = len(seen)
            while len(seen) == taken and not tasks[0].done():  # noqa: ASYNC110 - as above
                await asyncio.sleep(0)
        await tasks[0]
        assert sum(seen) == 2_000
        assert not quick.gone.is_set()
        for each in slow:
            each.reader.cut()
        await asyncio.gather(*tasks)

    asyncio.run(run())


def test_one_body_larger_than_the_bound_is_sent_all_the_same():
    async def run():
        slow = Slow(SendBuffers(10, PIECE), takes=99)
        await slow.reader.send(b"x" * 1_000, slow.take)
        assert sum(len(piece) for piece, _ in slow.pieces) == 1_000

    asyncio.run(run())


def test_a_reader_that_was_cut_is_sent_nothing_more():
    async def run():
        slow = Slow(SendBuffers(10_000, PIECE), takes=99)
        slow.reader.cut()
        await slow.reader.send(b"x" * 1_000, slow.take)
        assert slow.pieces == []

    asyncio.run(run())


def test_what_connections_hold_is_counted_too():
    send_buffers = SendBuffers(10_000, PIECE)
    readers = [send_buffers.open(ClientConnection(lambda: 7, lambda: None)) for _ in range(3)]
    assert send_buffers.buffered_bytes() == 21
    for each in readers:
        each.close()
    assert send_buffers.buffered_bytes() == 0


# --- an event's body is the same bytes for everybody ---------------------------------------------


def test_the_body_of_an_event_is_not_copied_for_a_reader():
    body = b'{"a":"' + b"x" * 10_000 + b'"}'
    event = StreamEvent("records", body, "0:7")
    assert event.body is body
    assert any(part is body for part in event.text_parts())
    assert any(isinstance(part, memoryview) and part.obj is body for part in event.message_parts())


def test_whoever_waits_for_the_next_event_holds_none():
    """A hundred idle subscribers must not keep the last page of each."""

    async def run(send_all):
        body = b'{"a":"' + b"x" * 10_000 + b'"}'
        before, idle = sys.getrefcount(body), asyncio.Event()

        async def events():
            yield StreamEvent("records", body, "0:7")
            idle.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(send_all(events()))
        await idle.wait()
        held = sys.getrefcount(body)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert held == before

    async def send(_):
        pass

    class Socket:
        async def send(self, _):
            pass

    def allowed():
        pass

    asyncio.run(run(lambda events: EventStream(Subscriptions(1), events, allowed)._send_all(send)))
    asyncio.run(run(lambda events: _send_messages(Socket(), events, allowed)))
