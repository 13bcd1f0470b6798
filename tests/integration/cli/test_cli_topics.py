"""`headrace topics` against real brokers."""

import os
import pty
import subprocess
import uuid

from confluent_kafka import Producer


def test_a_created_topic_is_listed_and_described(headrace):
    name = f"cli-{uuid.uuid4().hex[:8]}"
    made = headrace.json("topics", "create", name, "-p", "3", "-c", "retention.ms=86400000")
    assert made == {"topic": name, "partitions": 3, "created": True}
    listed = {row["topic"]: row for row in headrace.json("topics", "list")["topics"]}
    expected = {"topic": name, "partitions": 3, "records": 0, "exact": True, "size_bytes": 0}
    assert listed[name] == {**expected, "storage": "disk", "internal": False}
    described = headrace.json("topics", "describe", name)
    assert [each["partition"] for each in described["partitions"]] == [0, 1, 2]
    configs = {each["name"]: each for each in described["configs"]}
    assert configs["retention.ms"] == {
        "name": "retention.ms",
        "value": "86400000",
        "source": "topic",
        "read_only": False,
    }
    assert configs["cleanup.policy"]["source"] == "default"


def test_a_description_counts_records_and_bytes(headrace, topic, produce):
    produce(topic, *({"value": b"x" * 100, "partition": 1} for _ in range(5)))
    zero, one = headrace.json("topics", "describe", topic)["partitions"]
    assert (zero["log_start"], zero["log_end"], zero["records"]) == (0, 0, 0)
    assert (one["log_start"], one["log_end"], one["records"]) == (0, 5, 5)
    assert one["size_bytes"] > 500


def transactional(bootstrap):
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"t-{uuid.uuid4().hex}"})
    producer.init_transactions(60)
    return producer


def test_markers_and_what_was_aborted_are_no_records(headrace, topic):
    producer = transactional(headrace.bootstrap)
    for number in range(49):
        producer.begin_transaction()
        for _ in range(8 if number % 7 else 4):
            producer.produce(topic, b"x", partition=number % 2)
        if number % 7:
            producer.commit_transaction(60)
        else:
            producer.flush(60)
            producer.abort_transaction(60)
    described = headrace.json("topics", "describe", topic)
    assert (described["records"], described["exact"]) == (42 * 8, True)
    assert sum(each["log_end"] for each in described["partitions"]) > 42 * 8 + 49
    assert [each["exact"] for each in described["partitions"]] == [True, True]
    assert "2 partitions, 336 records, " in headrace.run("topics", "describe", topic).out.decode()
    (listed,) = [row for row in headrace.json("topics", "list")["topics"] if row["topic"] == topic]
    assert (listed["records"], listed["exact"]) == (336, True)
    (line,) = [row for row in headrace.run("topics", "list").out.decode().splitlines() if topic in row]
    assert line.split()[1:3] == ["2", "336"]


def test_what_an_open_transaction_wrote_may_be_records(headrace, topic, produce):
    produce(topic, {"value": b"sure", "partition": 0})
    producer = transactional(headrace.bootstrap)
    producer.begin_transaction()
    producer.produce(topic, b"perhaps", partition=0)
    producer.produce(topic, b"perhaps", partition=0)
    assert producer.flush(60) == 0
    described = headrace.json("topics", "describe", topic)
    assert (described["records"], described["exact"]) == (3, False)
    assert "at most 3 records, " in headrace.run("topics", "describe", topic).out.decode()
    producer.abort_transaction(60)
    described = headrace.json("topics", "describe", topic)
    assert (described["records"], described["exact"]) == (1, True)
    assert "2 partitions, 1 record, " in headrace.run("topics", "describe", topic).out.decode()


def test_creating_a_topic_twice_fails_unless_told_that_it_may_be_there(headrace, topic):
    refused = headrace.run("topics", "create", topic, expect=1)
    assert "already exists" in refused.err
    assert headrace.json("topics", "create", topic, "--if-missing")["created"] is False


def test_a_bad_name_and_a_bad_configuration_are_refused_with_the_cause(headrace):
    assert "creating topic" in headrace.run("topics", "create", "bad name!", expect=1).err
    refused = headrace.run("topics", "create", "fine", "-c", "retention.ms=soon", expect=1)
    assert "retention.ms" in refused.err


def test_partitions_and_configurations_are_altered(headrace, topic):
    altered = headrace.json("topics", "alter", topic, "-p", "4", "--config", "max.message.bytes=2000000")
    set_to = {"max.message.bytes": "2000000"}
    assert altered == {"topic": topic, "partitions": 4, "set": set_to, "unset": []}
    described = headrace.json("topics", "describe", topic)
    configs = {each["name"]: each for each in described["configs"]}
    assert len(described["partitions"]) == 4
    assert (configs["max.message.bytes"]["value"], configs["max.message.bytes"]["source"]) == (
        "2000000",
        "topic",
    )
    altered = headrace.json("topics", "alter", topic, "--unset", "max.message.bytes")
    assert altered == {"topic": topic, "partitions": None, "set": {}, "unset": ["max.message.bytes"]}
    configs = {each["name"]: each for each in headrace.json("topics", "describe", topic)["configs"]}
    assert configs["max.message.bytes"]["source"] == "default"


def test_partitions_cannot_be_taken_away(headrace, topic):
    assert "adding partitions" in headrace.run("topics", "alter", topic, "--partitions", "1", expect=1).err


def test_an_unknown_topic_is_named_with_the_next_step(headrace):
    refused = headrace.run("topics", "describe", "missing", expect=1)
    assert refused.err.startswith("error: topic 'missing' does not exist")
    assert "headrace topics create missing" in refused.err
    assert refused.err.count("\n") == 1


def test_looking_for_a_topic_does_not_create_it(headrace):
    for command in (("topics", "describe"), ("tail",), ("produce",)):
        headrace.run(*command, "never-made", expect=1)
    assert "never-made" not in {row["topic"] for row in headrace.json("topics", "list")["topics"]}


def test_without_a_terminal_a_topic_is_deleted_only_with_yes(headrace, topic):
    assert "--yes" in headrace.run("topics", "delete", topic, expect=2).err
    assert headrace.json("topics", "delete", topic, "--yes") == {"topic": topic, "deleted": True}
    assert topic not in {row["topic"] for row in headrace.json("topics", "list")["topics"]}


def test_on_a_terminal_a_topic_is_deleted_when_its_name_is_typed(headrace, topic):
    assert answer_on_terminal(headrace, topic, "no") == 1
    headrace.run("topics", "describe", topic)
    assert answer_on_terminal(headrace, topic, topic) == 0
    headrace.run("topics", "describe", topic, expect=1)


def answer_on_terminal(headrace, topic, answer):
    controller, terminal = pty.openpty()
    try:
        process = headrace.start("topics", "delete", topic, stdin=terminal)
        os.write(controller, answer.encode() + b"\n")
        process.communicate(timeout=60)
        return process.returncode
    finally:
        os.close(controller)
        os.close(terminal)


def test_the_oldest_records_of_a_partition_are_deleted(headrace, topic, produce):
    produce(topic, *({"value": b"v", "partition": p} for p in (0, 1) for _ in range(4)))
    done = headrace.json("topics", "delete-records", f"{topic}:1", "--before", "3", "--yes")
    assert done == {"topic": topic, "partitions": [{"partition": 1, "log_start": 3}]}
    assert [each["records"] for each in headrace.json("topics", "describe", topic)["partitions"]] == [4, 1]


def test_tables_for_people_are_not_cut_off_in_a_pipe(headrace, topic):
    shown = headrace.run("topics", "describe", topic).out.decode()
    assert f"topic {topic}: 2 partitions, 0 records" in shown
    assert "…" not in shown


def test_a_reader_that_goes_away_ends_the_command_quietly(headrace, topic, produce):
    produce(topic, *({"value": b"x" * 1000} for _ in range(500)))
    command = " ".join(
        [*headrace.arguments("tail", topic, "--from", "earliest"), "| head -1 >&2; echo ${PIPESTATUS[0]}"]
    )
    done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=60)
    assert done.stdout == b"141\n"
    assert b"Traceback" not in done.stderr
