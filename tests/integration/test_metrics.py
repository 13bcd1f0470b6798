"""The metrics and health of a running broker, as a Prometheus server would see them."""

import contextlib
import errno
import json
import os
import socket
import struct
from pathlib import Path

import pytest
from broker.conftest import NOW_MS, Peer, batch_of
from clients.waiting import wait_until
from prometheus_text import parse
from scraping import ask, count, scrape, value

from headrace.errors import ConfigError
from headrace.records import Record, encode_batch
from headrace.storage import Disk
from headrace.testing.broker import BrokerProcess, running_broker
from headrace.testing.disk import SimulatedDisk
from headrace.wire import Api

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with running_broker(
        tmp_path_factory.mktemp("metrics"), metrics_listen="127.0.0.1:0", max_connections=5
    ) as broker:
        yield broker


@pytest.fixture
def peer(broker):
    peer = Peer(broker.port)
    yield peer
    peer.close()


def test_every_metric_is_documented_and_every_documented_one_is_there(broker):
    families = scrape(broker)
    page = PAGE.read_text().partition("## Application")[0]
    missing = [
        row
        for name, family in families.items()
        if (row := f"| `{name}` | {family['kind']} | {family['help']} |") not in page
    ]
    assert not missing, "put these rows into docs/reference/metrics.md:\n" + "\n".join(missing)
    rows = [line for line in page.splitlines() if line.startswith(("| `headrace_", "| `process_"))]
    assert len(rows) == len(families)


def test_throughput_is_counted_in_records_and_bytes_both_ways(broker, peer):
    peer.create("busy")
    batch = bytes(batch_of(b"a", b"b", b"c"))
    peer.produce("busy", batch)
    peer.produce("busy", batch)
    assert len(peer.fetch("busy", 0, wait_ms=1000).records) == 2 * len(batch)
    peer.fetch("busy", 6)  # nothing new: counts nothing
    found = scrape(broker)
    assert value(found, "headrace_produced_records_total", topic="busy") == 6
    assert value(found, "headrace_produced_bytes_total", topic="busy") == 2 * len(batch)
    assert value(found, "headrace_fetched_records_total", topic="busy") == 6
    assert value(found, "headrace_fetched_bytes_total", topic="busy") == 2 * len(batch)
    assert value(found, "headrace_partition_high_watermark", topic="busy", partition="0") == 6
    assert value(found, "headrace_partition_size_bytes", topic="busy", partition="0") == 2 * len(batch)


def test_requests_and_syncs_are_timed(broker, peer):
    before = scrape(broker)
    peer.create("timed")
    peer.produce("timed", batch_of(b"x"))
    peer.fetch("timed", 1, wait_ms=120, min_bytes=1)
    after = scrape(broker)
    for api in ("create_topics", "produce", "fetch"):
        name = "headrace_request_seconds"
        assert count(after, name, api=api) == count(before, name, api=api) + 1
    assert count(after, "headrace_sync_seconds") > count(before, "headrace_sync_seconds")
    assert (
        after["headrace_request_seconds"]["samples"]["headrace_request_seconds_sum", (("api", "fetch"),)]
        > 0.1
    )


def test_errors_are_counted_by_api_and_code(broker, peer):
    peer.create("known")
    peer.produce("nowhere", batch_of(b"x"))
    peer.fetch("known", 99)
    peer.request(
        Api.DELETE_RECORDS, 2, {"topics": [{"name": "nowhere", "partitions": [{"partition_index": 0}]}]}
    )
    found = scrape(broker)
    name = "headrace_errors_total"
    assert value(found, name, api="produce", code="unknown_topic_or_partition") == 1
    assert value(found, name, api="fetch", code="offset_out_of_range") == 1
    assert value(found, name, api="delete_records", code="unknown_topic_or_partition") == 1


def closed(broker, reason):
    return value(scrape(broker), "headrace_connections_closed_total", reason=reason)


def test_connections_are_counted_open_refused_and_closed(broker, peer):
    peer.request(Api.API_VERSIONS, 2, {})
    wait_until(lambda: value(scrape(broker), "headrace_connections") == 1)
    refused, malformed = closed(broker, "refused"), closed(broker, "malformed")
    many = [socket.create_connection(("127.0.0.1", broker.port)) for _ in range(5)]
    assert many[-1].recv(1) == b""
    wait_until(lambda: closed(broker, "refused") == refused + 1)
    many[0].sendall(struct.pack(">i", -5))
    assert many[0].recv(1) == b""
    wait_until(lambda: closed(broker, "malformed") == malformed + 1)
    for each in many:
        each.close()


def test_what_retention_removed_is_counted(tmp_path):
    with running_broker(tmp_path, metrics_listen="127.0.0.1:0", upkeep_interval_ms=20) as broker:
        peer = Peer(broker.port)
        peer.create("short", segment_bytes=1024, retention_ms=1)
        for _ in range(4):
            peer.produce("short", batch_of(b"x" * 800))
        peer.close()
        found = scrape(broker)
        while value(found, "headrace_retention_segments_total", topic="short") < 4:
            found = scrape(broker)
    assert value(found, "headrace_partition_log_start", topic="short", partition="0") == 4
    assert value(found, "headrace_upkeep_seconds_total") > 0
    assert value(found, "headrace_upkeep_failures_total", topic="short") == 0


class NoRoomToCompact(Disk):
    """Full for whoever wants to begin a compacted segment, and for nobody else."""

    def open(self, path, *, write=False, create=False):
        if create and ".clog" in path.name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().open(path, write=write, create=create)


def test_a_compaction_that_fails_is_counted_and_harms_nobody(tmp_path):
    with running_broker(
        tmp_path, disk=NoRoomToCompact(), metrics_listen="127.0.0.1:0", upkeep_interval_ms=20
    ) as broker:
        peer = Peer(broker.port)
        peer.create("table", segment_bytes=1024, cleanup_policy="compact")
        batch = encode_batch([Record(0, NOW_MS, b"key", b"x" * 800)])
        for offset in range(4):
            assert peer.produce("table", bytearray(batch)).base_offset == offset
        wait_until(lambda: value(scrape(broker), "headrace_upkeep_failures_total", topic="table") >= 2)
        assert [len(peer.fetch("table", offset).records) for offset in range(4)] == [len(batch)] * 4
        assert peer.produce("table", bytearray(batch)).error_code == 0
        peer.close()
        assert value(scrape(broker), "headrace_compaction_saved_bytes_total", topic="table") == 0


def test_a_healthy_broker_answers_200(broker):
    status, kind, text = ask(broker.metrics_port, "/health")
    assert (status, kind) == (200, "application/json")
    assert json.loads(text) == {"status": "healthy", "problems": [], "warnings": []}


def test_a_read_only_partition_is_unhealthy_and_named(tmp_path):
    disk = SimulatedDisk()
    with running_broker(tmp_path, disk=disk, metrics_listen="127.0.0.1:0") as broker:
        peer = Peer(broker.port)
        peer.create("broken")
        disk.failing_syncs = 1
        assert peer.produce("broken", batch_of(b"x")).error_code == 56
        peer.close()
        status, _, text = ask(broker.metrics_port, "/health")
        assert status == 503
        assert "partition broken:0 cannot be written" in json.loads(text)["problems"][0]
        assert value(scrape(broker), "headrace_partition_read_only", topic="broken", partition="0") == 1


def test_a_disk_without_room_is_unhealthy(tmp_path):
    with running_broker(tmp_path, metrics_listen="127.0.0.1:0", health_min_free_bytes=1 << 60) as broker:
        status, _, text = ask(broker.metrics_port, "/health")
    assert status == 503
    assert "health_min_free_bytes" in json.loads(text)["problems"][0]


def test_anything_else_is_refused_politely(broker):
    assert ask(broker.metrics_port, "/secrets")[0] == 404
    assert ask(broker.metrics_port, "/metrics", "POST")[0] == 405
    assert ask(broker.metrics_port, "/health", "HEAD")[2] == ""


def test_a_client_that_sends_no_http_does_no_harm(broker):
    with socket.create_connection(("127.0.0.1", broker.metrics_port)) as bad:
        bad.sendall(b"x" * 100_000)
        bad.settimeout(20)
        with contextlib.suppress(ConnectionResetError):
            assert bad.recv(1) == b""
    assert ask(broker.metrics_port, "/health")[0] == 200


def test_the_endpoint_is_off_unless_set(tmp_path):
    with running_broker(tmp_path) as broker:
        assert broker.metrics_port is None


def test_an_address_beyond_loopback_is_refused_unless_told_so(tmp_path):
    with (
        pytest.raises(ConfigError, match="metrics_public"),
        running_broker(tmp_path, metrics_listen="0.0.0.0:0"),
    ):
        pass
    with running_broker(tmp_path, metrics_listen="0.0.0.0:0", metrics_public=True) as broker:
        assert ask(broker.metrics_port, "/health")[0] == 200


def test_the_command_announces_the_port(tmp_path):
    with BrokerProcess(tmp_path, metrics_listen="127.0.0.1:0") as process:
        assert process.metrics_port
        status, _, text = ask(process.metrics_port, "/metrics")
    assert status == 200
    assert value(parse(text), "process_resident_memory_bytes") > 10_000_000
