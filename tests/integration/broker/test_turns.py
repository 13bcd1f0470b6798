"""However fast one client takes a long answer, the others have their turn before its end."""

import asyncio
import os
import select
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from clients.raw import RawConnection, fetch_request, frame_of
from kio.schema.api_versions.v0.request import ApiVersionsRequest

from headrace.broker import Broker, BrokerSettings
from headrace.broker.connection.connection import ServedConnection
from headrace.broker.connection.connections import Connections
from headrace.broker.connection.shared import shared_by_connections
from headrace.event_loop import new_loop
from headrace.storage import Disk

MIB = 1 << 20
HISTORY_MIB = 40
VALUE_BYTES = MIB - 1000
MOST_MIB = 10  # that others may wait for: a turn of the longest kind is 4, and a look may come a turn late


class ReadPiecewise(Disk):
    """A disk whose files are read by Python, as those of a simulated one are."""

    @property
    def reads_plainly(self) -> bool:
        return False


class Bottomless(asyncio.Transport):
    """The broker's side of a client that takes all it is sent at once: a file has it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = path.open("wb", buffering=0)

    @property
    def taken_bytes(self) -> int:
        return os.fstat(self._file.fileno()).st_size

    def get_extra_info(self, name: str, default: object = None) -> object:
        return self._file if name == "socket" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._file.write(data)

    def is_closing(self) -> bool:
        return self._file.closed

    def abort(self) -> None:
        self._file.close()


async def fill(broker: Broker, topic: str) -> None:
    filler = await RawConnection.open(f"127.0.0.1:{broker.port}")
    await filler.create(topic)
    for _ in range(HISTORY_MIB):
        await filler.produce(topic, [os.urandom(VALUE_BYTES)])
    filler.close()


async def connected(port: int) -> socket.socket:
    """A client that is known to the broker, and sends when it is told to."""
    other = socket.create_connection(("127.0.0.1", port))
    other.setblocking(False)
    other.send(frame_of(ApiVersionsRequest()))
    assert await asyncio.get_running_loop().sock_recv(other, 4096)
    return other


@asynccontextmanager
async def asking(broker: Broker, transport: Bottomless, frame: bytes) -> AsyncIterator[None]:
    """A connection of the broker's on which the frame has just come."""
    parts = broker.services
    connections = Connections(
        *(broker.settings, parts.clock, parts.metrics, parts.memory), on_gone=parts.queues.disconnected
    )
    async with asyncio.TaskGroup() as tasks:
        connections.start(tasks)
        connection = ServedConnection(shared_by_connections(parts, connections))
        connection.connection_made(transport)
        connection.get_buffer(-1)[: len(frame)] = frame
        connection.buffer_updated(len(frame))
        yield
        transport.abort()
        connection.connection_lost(None)


def is_readable(opened: socket.socket) -> bool:
    return bool(select.select([opened], [], [], 0)[0])


async def wait_until(condition: Callable[[], bool]) -> None:
    """Looks once in each turn of the event loop."""
    while not condition():  # noqa: ASYNC110 - it is the turns that are looked at
        await asyncio.sleep(0)


@pytest.mark.parametrize("way", ["told who waits", "not told", "read piecewise"])
def test_whoever_asks_is_answered_before_a_long_answer_goes_on(tmp_path: Path, way: str):
    """Counted in what the other one was sent meanwhile, which no load on the machine changes."""
    settings = BrokerSettings(data=str(tmp_path / "data"), listen="127.0.0.1:0")
    size = HISTORY_MIB * VALUE_BYTES
    history = frame_of(fetch_request("history", 0, min_bytes=size, max_bytes=2 * size))

    async def run() -> None:
        disk = ReadPiecewise() if way == "read piecewise" else Disk()
        async with Broker(settings, disk=disk).serving() as broker:
            await fill(broker, "history")
            other = await connected(broker.port)
            async with asking(broker, taking := Bottomless(tmp_path / "taken"), history):
                await wait_until(lambda: taking.taken_bytes > 0)
                before = taking.taken_bytes
                other.send(frame_of(ApiVersionsRequest()))
                await wait_until(lambda: is_readable(other))
                overtaken = taking.taken_bytes - before
                await wait_until(lambda: taking.taken_bytes > size)
            print(f"{before / MIB:.2f} MiB in a first turn, {overtaken / MIB:.2f} before the other's answer")
            assert max(before, overtaken) <= MOST_MIB * MIB
            other.close()

    # Only uvloop tells whether somebody waits.
    with asyncio.Runner(loop_factory=asyncio.new_event_loop if way == "not told" else new_loop) as runner:
        runner.run(run())
