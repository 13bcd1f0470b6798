"""`headrace broker`: starting, announcing, stopping, refusing."""

import json
import signal
import subprocess
import sys

import pytest
from confluent_kafka.admin import AdminClient

from headrace.checked_json import encode_fields
from headrace.storage import DataDirectory
from headrace.testing.batches import batch, commit

COMMAND = [sys.executable, "-m", "headrace", "broker", "--listen", "127.0.0.1:0"]


@pytest.fixture
def start(tmp_path):
    processes = []

    def run(*arguments):
        command = [*COMMAND, "--data", str(tmp_path / "log"), *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        processes.append(process)
        return process

    yield run
    for process in processes:
        process.kill()
        process.communicate()


def test_it_announces_where_it_listens_in_one_line(start, tmp_path):
    process = start()
    line = process.stdout.readline()
    assert line.startswith("listening on 127.0.0.1:")
    assert line.endswith(f"data in {(tmp_path / 'log').resolve()}, pid {process.pid}\n")


def test_a_client_can_connect_as_soon_as_it_is_announced(start, tmp_path):
    process = start("--json")
    said = json.loads(process.stdout.readline())
    assert said == {
        "listening": f"127.0.0.1:{said['port']}",
        "host": "127.0.0.1",
        "port": said["port"],
        "data": str((tmp_path / "log").resolve()),
        "pid": process.pid,
    }
    assert AdminClient({"bootstrap.servers": said["listening"]}).list_topics(timeout=120).brokers


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_it_cleanly(start, how):
    process = start()
    process.stdout.readline()
    process.send_signal(how)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out, err) == (0, "stopped\n", "")


def test_a_second_broker_on_the_same_data_is_refused_in_one_line(start):
    first = start()
    first.stdout.readline()
    second = start("--json")
    out, err = second.communicate(timeout=120)
    assert second.returncode == 2
    assert out == ""
    assert err.count("\n") == 1
    assert "error" in json.loads(err)
    assert first.poll() is None


def test_data_of_a_newer_format_is_refused_in_one_line(start, tmp_path):
    (tmp_path / "log" / "topics").mkdir(parents=True)
    (tmp_path / "log" / "headrace.json").write_text('{"format_version": 2, "cluster_id": "x"}')
    process = start()
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (2, "")
    assert err.count("\n") == 1
    assert "has format version 2, this Headrace reads 1; install the version that wrote it" in err


def test_settings_come_from_flags_and_from_the_environment(start, monkeypatch):
    monkeypatch.setenv("HEADRACE_NODE_ID", "7")
    process = start("--json", "--default-partitions", "3")
    bootstrap = json.loads(process.stdout.readline())["listening"]
    assert list(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=120).brokers) == [7]
    made = [sys.executable, "-m", "headrace", "topics", "create", "t", "--json", "--bootstrap", bootstrap]
    done = subprocess.run(made, capture_output=True, text=True, timeout=60)
    assert json.loads(done.stdout)["partitions"] == 3


@pytest.mark.parametrize("name", ["headrace.json", "producer-ids", "topic.json", "log-start", "quotas.json"])
def test_a_damaged_file_keeps_the_broker_from_starting_and_is_named_without_a_traceback(tmp_path, name):
    directory = DataDirectory(tmp_path)
    log = directory.create_topic("t", 1).partitions[0]
    commit(log, batch(b"a"), batch(b"b"))
    log.delete_before(1)
    directory.allocate_producer_ids(1)
    directory.close()
    (tmp_path / "quotas.json").write_bytes(encode_fields({"version": 1, "quotas": []}))
    (path,) = tmp_path.rglob(name)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)
    command = [*COMMAND, "--data", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert str(path) in done.stderr
    assert "restore it from a copy" in done.stderr
    assert "Traceback" not in done.stderr
