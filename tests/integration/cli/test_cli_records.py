"""`headrace produce` and `headrace tail` against real brokers."""

import json
import os
import pty
import signal
import subprocess

import pytest
from aiokafka.partitioner import murmur2

from headrace.testing.broker import BrokerProcess

HOSTILE = b"\x1b]0;owned\x07\x1b[2J\r\nother:0@0 2026-01-01T00:00:00.000Z key forged"


def by_offset(records):
    return sorted(records, key=lambda each: (each["partition"], each["offset"]))


def test_lines_become_records(headrace, topic):
    done = headrace.json("produce", topic, "--partition", "0", stdin=b"one\ntwo\n\nlast without newline")
    assert done == {"topic": topic, "read": 4, "acknowledged": 4, "failed": 0, "unknown": 0, "failures": []}
    records = headrace.tail(topic)
    assert [each["value"] for each in records] == ["one", "two", "", "last without newline"]
    assert {each["key"] for each in records} == {None}


def test_a_key_picks_the_partition_that_other_clients_would_pick(headrace, topic):
    headrace.run("produce", topic, "-k", ":", stdin=b"".join(b"k%d:v\n" % (n % 7) for n in range(70)))
    homes = {(each["key"], each["partition"]) for each in headrace.tail(topic, "--from", "earliest")}
    keys = [f"k{n}" for n in range(7)]
    assert homes == {(key, (murmur2(key.encode()) & 0x7FFFFFFF) % 2) for key in keys}


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_accepted(headrace, topic, codec):
    headrace.run("produce", topic, "--codec", codec, stdin=b"same text\n" * 200)
    assert len(headrace.tail(topic, "--from", "earliest")) == 200


def test_a_topic_is_copied_record_for_record_through_json_lines(headrace, topic, produce):
    produce(
        topic,
        {
            "key": b"\xff\x00",
            "value": b"\xfe",
            "headers": [("h", b"\x80"), ("n", None), ("h", b"")],
            "partition": 0,
        },
        {"key": b"k", "value": None, "partition": 0, "timestamp": 1234},
        {"key": None, "value": "grün\n\x1b".encode(), "partition": 1, "timestamp": 5678},
    )
    printed = headrace.run("tail", topic, "--json", "--no-follow").out
    copy = topic + "-copy"
    headrace.run("topics", "create", copy, "-p", "2", "-c", "retention.ms=-1")
    headrace.run("produce", copy, "--json-lines", stdin=printed)
    original, copied = by_offset(headrace.tail(topic)), by_offset(headrace.tail(copy))
    assert len(original) == 3
    assert copied == [{**each, "topic": copy} for each in original]


def test_bad_lines_are_reported_by_number_and_the_rest_is_sent(headrace, topic):
    lines = b'{"value": "a"}\n{"vaule": "b"}\n{"value": "c", "partition": 99}\n{"value": "d"}\n'
    done = headrace.run("produce", topic, "--json-lines", "--json", stdin=lines, expect=1)
    assert {name: done.json()[name] for name in ("read", "acknowledged", "failed")} == {
        "read": 4,
        "acknowledged": 2,
        "failed": 2,
    }
    assert {each["line"] for each in done.json()["failures"]} == {2, 3}
    assert {json.loads(line)["line"] for line in done.err.splitlines()} == {2, 3}
    assert sorted(each["value"] for each in headrace.tail(topic)) == ["a", "d"]


def test_a_record_over_the_limit_fails_and_says_so(headrace, topic):
    done = headrace.run("produce", topic, stdin=b"x" * 3_000_000, expect=1)
    assert "line 1:" in done.err
    assert headrace.tail(topic) == []


@pytest.fixture
def numbered(topic, produce):
    """Ten records in partition 0, at 1 to 10 seconds after the epoch, and two in partition 1."""
    produce(
        topic,
        *(
            {"key": f"user-{n % 2}", "value": json.dumps({"n": n}), "partition": 0, "timestamp": 1000 * n}
            for n in range(1, 11)
        ),
        *({"value": f"other {n}", "partition": 1, "timestamp": 1000 * n} for n in (1, 20)),
    )
    return topic


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        (("--from", "earliest"), range(10)),
        (("--from", "latest"), []),
        (("--from", "7"), [7, 8, 9]),
        (("--from", "@8500"), [8, 9]),
        (("--last", "3"), [7, 8, 9]),
        (("--from", "earliest", "--until", "2"), [0, 1]),
        (("--from", "earliest", "--until", "@2500"), [0, 1]),
        (("--from", "2", "--max", "2"), [2, 3]),
        (("--key", "user-0"), [1, 3, 5, 7, 9]),
        (("--key-prefix", "user-1"), [0, 2, 4, 6, 8]),
        (("--grep", '"n": 1'), [0, 9]),
        (("--match", "[37]}$"), [2, 6]),
        (("--since", "@9000"), [8, 9]),
        (("--since", "1970-01-01T00:00:03Z", "--before", "@5000"), [2, 3]),
        (("--from", "earliest", "--key", "user-0", "--before", "@5000"), [1, 3]),
    ],
)
def test_a_tail_starts_stops_and_filters_as_told(headrace, numbered, options, offsets):
    stop = () if "--until" in options else ("--no-follow",)
    shown = headrace.run("tail", numbered, "--partition", "0", "--json", *options, *stop).lines()
    assert [each["offset"] for each in shown] == list(offsets)


def test_last_counts_in_each_partition(headrace, numbered):
    assert [
        (each["partition"], each["offset"]) for each in by_offset(headrace.tail(numbered, "--last", "1"))
    ] == [
        (0, 9),
        (1, 1),
    ]


def test_a_tail_leaves_no_group_and_no_offset_behind(headrace, numbered):
    before = headrace.json("groups", "list")
    headrace.tail(numbered)
    assert headrace.json("groups", "list") == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_tail_follows_until_it_is_told_to_stop_however_it_was_started(headrace, topic, produce, number):
    """A shell that puts it into the background, or a runner of CI, has it ignore Ctrl-C."""
    produce(topic, {"value": b"already there"})
    process = headrace.start("tail", topic, "--json", preexec_fn=ignore_ctrl_c)
    try:
        assert json.loads(process.stdout.readline())["value"] == "already there"
        produce(topic, {"value": b"arrived later"})
        assert json.loads(process.stdout.readline())["value"] == "arrived later"
        process.send_signal(number)
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out) == (0, b"")
    assert json.loads(err) == {"note": "stopped"}


def ignore_ctrl_c():
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def test_a_tail_that_has_an_end_and_is_interrupted_before_it_has_failed(headrace, topic, produce):
    process = headrace.start("tail", topic, "--max", "5", "--json")
    try:
        produce(topic, {"value": b"one of five"})
        assert json.loads(process.stdout.readline())["value"] == "one of five"
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, err) == (130, b"")


def test_a_tail_with_a_maximum_ends_by_itself(headrace, numbered):
    shown = headrace.run("tail", numbered, "--json", "--from", "earliest", "--max", "4").lines()
    assert len(shown) == 4


def test_values_go_byte_for_byte_into_a_pipe(headrace, topic, produce):
    produce(topic, {"value": HOSTILE, "partition": 0}, {"value": b"\xff", "partition": 0})
    assert headrace.run("tail", topic, "--values", "--no-follow").out == HOSTILE + b"\n\xff\n"


@pytest.mark.parametrize("form", [(), ("--values",), ("--json",)])
def test_hostile_data_cannot_command_a_terminal(headrace, topic, produce, form):
    produce(topic, {"key": HOSTILE, "value": HOSTILE, "headers": [("\x1b[31m", HOSTILE)]})
    shown = on_terminal(headrace, "tail", topic, "--no-follow", *form, NO_COLOR="1")
    assert b"owned" in shown
    assert b"\x1b" not in shown
    assert b"\x07" not in shown
    assert b"\nother:0@0" not in shown.replace(b"\r", b"")


def on_terminal(headrace, *arguments, **environment):
    """What a command writes when stdout is a terminal."""
    controller, terminal = pty.openpty()
    process = headrace.start(*arguments, stdout=terminal, env={**os.environ, **environment})
    os.close(terminal)
    shown = b""
    try:
        while chunk := os.read(controller, 65536):
            shown += chunk
    except OSError:  # Linux's way to say that the other side was closed
        pass
    finally:
        os.close(controller)
    assert process.wait(60) == 0
    return shown


def test_people_see_json_indented_headers_and_nulls(headrace, topic, produce):
    produce(
        topic, {"key": b"k", "value": b'{"a":[1]}', "headers": [("h", b"x")], "partition": 0, "timestamp": 1}
    )
    produce(topic, {"key": b"k", "value": None, "partition": 0, "timestamp": 2})
    assert headrace.run("tail", topic, "--no-follow").out.decode() == (
        f"{topic}:0@0 1970-01-01T00:00:00.001Z key k\n"
        "  h: x\n"
        "    {\n"
        '      "a": [\n'
        "        1\n"
        "      ]\n"
        "    }\n"
        f"{topic}:0@1 1970-01-01T00:00:00.002Z key k\n"
        "    null\n"
    )


def test_a_file_that_is_not_there_is_named(headrace, topic, tmp_path):
    missing = tmp_path / "missing.txt"
    failed = headrace.run("produce", topic, "--file", str(missing), expect=1)
    assert str(missing) in failed.err


def test_a_file_is_sent(headrace, topic, tmp_path):
    path = tmp_path / "lines.txt"
    path.write_bytes(b"".join(b"%d\n" % n for n in range(5_000)))
    assert headrace.json("produce", topic, "--file", str(path))["acknowledged"] == 5_000


def test_an_interrupted_produce_says_what_is_known(headrace, topic):
    process = headrace.start("produce", topic, "--json", stdin=subprocess.PIPE)
    try:
        process.stdin.write(b"one\ntwo\n")
        process.stdin.flush()
        while len(headrace.tail(topic)) < 2:
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, err
    assert json.loads(out)["read"] == 2


def test_records_deleted_before_a_tail_read_them_are_named_not_skipped(headrace, topic, produce):
    produce(topic, {"value": b"first", "partition": 0})
    process = headrace.start("tail", topic, "--partition", "0", "--json")
    try:
        assert json.loads(process.stdout.readline())["value"] == "first"
        process.send_signal(signal.SIGSTOP)
        for each in (b"second", b"third", b"fourth", b"fifth"):
            produce(topic, {"value": each, "partition": 0})
        headrace.run("topics", "delete-records", f"{topic}:0", "--before", "4", "--yes")
        process.send_signal(signal.SIGCONT)
        shown = [json.loads(process.stdout.readline())]
        while shown[-1]["value"] != "fifth":
            shown.append(json.loads(process.stdout.readline()))
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert len(shown) < 4, "nothing was deleted under the reader: the test proves nothing"
    assert "before offset 4 were deleted before they were read" in json.loads(err.splitlines()[0])["note"]


def test_a_following_tail_survives_a_restart_of_the_broker(command_on, tmp_path):
    with BrokerProcess(tmp_path / "log") as broker:
        headrace = command_on(broker.bootstrap)
        headrace.run("topics", "create", "orders")
        headrace.run("produce", "orders", stdin=b"before\n")
        process = headrace.start("tail", "orders", "--json")
        try:
            assert json.loads(process.stdout.readline())["value"] == "before"
            broker.kill()
            assert "is unreachable; waiting" in json.loads(process.stderr.readline())["note"]
            broker.start()
            headrace.run("produce", "orders", stdin=b"after\n")
            assert json.loads(process.stdout.readline())["value"] == "after"
        finally:
            process.kill()
            process.communicate()
