"""What a client may not do, and that the others do not notice."""

import contextlib
import socket
import struct

import pytest
from tests.integration.standstill import judged

from headrace.errors import ConfigError, RetriableError
from headrace.testing.broker import running_broker
from headrace.wire import Api, ErrorCode, encode_request, versions_of

from .conftest import Peer, batch_of, produce_fields


def closed_by_the_other_side(sock: socket.socket, seconds: float = 60) -> bool:
    sock.settimeout(seconds)
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", -5),
        struct.pack(">ihhih", 10, 12345, 0, 1, -1),
        struct.pack(">ihhih", 10, Api.METADATA, 99, 1, -1),
        struct.pack(">ihhihi", 14, Api.METADATA, 4, 1, -1, 2**31 - 1),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
    ids=["huge", "negative", "unknown api", "unknown version", "array bomb", "http"],
)
def test_nonsense_closes_its_own_connection_only(broker, peer, data):
    with socket.create_connection(("127.0.0.1", broker.port)) as bad:
        bad.sendall(data)
        assert closed_by_the_other_side(bad)
    assert peer.request(Api.API_VERSIONS, 2, {}).error_code == 0


def test_an_api_versions_request_from_the_future_is_answered_in_version_0(broker):
    with contextlib.closing(Peer(broker.port)) as peer:
        peer.socket.sendall(struct.pack(">ihhih", 10, Api.API_VERSIONS, 99, 7, -1))
        frame = peer._receive()
    correlation_id, code, count = struct.unpack_from(">ihi", frame)
    assert (correlation_id, code) == (7, ErrorCode.unsupported_version)
    assert count > 15


def test_every_served_version_has_a_schema(peer):
    for served in peer.request(Api.API_VERSIONS, 2, {}).api_keys:
        known = versions_of(served.api_key)
        assert known.lowest <= served.min_version <= served.max_version <= known.highest


def test_only_produce_requests_may_be_large(start):
    broker = start(max_control_bytes=70_000)
    with contextlib.closing(Peer(broker.port)) as peer:
        peer.create("t")
        assert peer.produce("t", batch_of(bytes(200_000))).error_code == 0
        with pytest.raises(RetriableError):
            peer.request(Api.METADATA, 4, {"topics": [{"name": "x" * 200} for _ in range(500)]})


def test_a_request_that_stays_half_is_given_up(start):
    broker = start(receive_timeout_ms=200)
    with socket.create_connection(("127.0.0.1", broker.port)) as half:
        half.sendall(struct.pack(">i", 1000) + b"half")
        assert closed_by_the_other_side(half)


def test_an_idle_connection_is_closed_and_a_busy_one_is_not(start, tmp_path):
    def wait(timeout_s, pulse):
        broker = start(idle_timeout_ms=1000 * timeout_s, data=tmp_path / str(timeout_s))
        with (
            contextlib.closing(Peer(broker.port)) as busy,
            socket.create_connection(("127.0.0.1", broker.port)) as idle,
        ):
            idle.settimeout(0.2)
            pulse.beat()
            while True:
                busy.request(Api.API_VERSIONS, 2, {})
                pulse.beat()
                with contextlib.suppress(TimeoutError):
                    assert idle.recv(1) == b""
                    break
            busy.request(Api.API_VERSIONS, 2, {})

    judged(wait, 5, 30)


def test_connections_beyond_the_limit_are_closed(start):
    broker = start(max_connections=3)
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            peer = stack.enter_context(contextlib.closing(Peer(broker.port)))
            peer.request(Api.API_VERSIONS, 2, {})
        one_more = stack.enter_context(socket.create_connection(("127.0.0.1", broker.port)))
        assert closed_by_the_other_side(one_more)
        peer.request(Api.API_VERSIONS, 2, {})


def test_large_requests_wait_for_memory_and_small_ones_do_not(start, monkeypatch):
    # None of these is to be closed for it.
    monkeypatch.setattr("headrace.broker.connection.connections.STALLED_MS", 60_000)
    broker = start(request_memory_bytes=1_000_000)
    memory = broker.services.memory
    with contextlib.ExitStack() as stack:
        one, beyond, waiting, small = (
            stack.enter_context(contextlib.closing(Peer(broker.port))) for _ in range(4)
        )
        small.create("t")
        frame = encode_request(Api.PRODUCE, 9, 1, "p", produce_fields("t", batch_of(bytes(900_000))))
        one.socket.sendall(frame[:500_000])
        wait_until(lambda: memory.held_bytes > 900_000)
        beyond.socket.sendall(frame[:300_000])
        wait_until(lambda: memory.held_bytes > 1_800_000)
        waiting.socket.sendall(frame[:300_000])
        wait_until(lambda: memory.wanted)
        assert small.produce("t", batch_of(b"small")).error_code == 0
        assert memory.held_bytes < 2_000_000
        one.socket.sendall(frame[500_000:])
        assert one._receive()
        for late in (beyond, waiting):
            late.socket.sendall(frame[300_000:])
            assert late._receive()
        wait_until(lambda: memory.held_bytes == 0)


def test_one_that_stalls_on_memory_that_others_want_is_closed_soon(start):
    broker = start(request_memory_bytes=1_000_000)
    frame = encode_request(Api.PRODUCE, 9, 1, "p", produce_fields("t", batch_of(bytes(900_000))))
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(contextlib.closing(Peer(broker.port))) for _ in range(3)]
        peers[0].create("t")
        for peer in peers[:2]:
            peer.socket.sendall(frame[:500_000])
        wait_until(lambda: broker.services.memory.held_bytes > 1_800_000)
        peers[2].socket.sendall(frame[:500_000])  # who waits, for as long as a stall is put up with
        stalled = peers[0].socket
        while not closed_by_the_other_side(stalled):
            pass
        peers[2].socket.sendall(frame[500_000:])
        assert peers[2]._receive()


def test_memory_of_a_client_that_left_in_the_middle_comes_back(start):
    broker = start(request_memory_bytes=1_000_000)
    frame = encode_request(Api.PRODUCE, 9, 1, "p", produce_fields("t", batch_of(bytes(900_000))))
    with socket.create_connection(("127.0.0.1", broker.port)) as leaver:
        leaver.sendall(frame[:500_000])
        wait_until(lambda: broker.services.memory.held_bytes > 0)
    wait_until(lambda: broker.services.memory.held_bytes == 0)


def wait_until(condition) -> None:
    import time

    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.005)


def test_a_second_broker_on_the_same_directory_is_refused(start, tmp_path):
    start()
    with pytest.raises(ConfigError, match="in use by process"), running_broker(tmp_path):
        pass


def test_a_port_that_is_taken_is_refused_with_the_next_step(start, tmp_path):
    broker = start(data=tmp_path / "one")
    taken = f"127.0.0.1:{broker.port}"
    with (
        pytest.raises(ConfigError, match="choose another --listen"),
        running_broker(tmp_path / "two", listen=taken),
    ):
        pass


def test_a_data_directory_that_cannot_be_is_refused_with_the_next_step(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with (
        pytest.raises(ConfigError, match="choose another --data"),
        running_broker(tmp_path / "file" / "data"),
    ):
        pass
