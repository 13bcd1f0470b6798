"""Changes of topics on a disk that refuses one step of them, or everything from one step on.

`ChangesAreWholeOrNot`: whoever was told of an error finds the topic as it was, whoever was
told nothing finds it changed. `AckedRecordsSurvive`: also those of a topic whose deletion failed.
"""

import itertools
import random
from pathlib import Path

import pytest

from headrace.errors import ConfigError, DiskError, RequestError
from headrace.storage import DataDirectory
from headrace.testing.batches import batch, commit, read_all
from headrace.testing.disk import SimulatedDisk

DATA = Path("data")
BEFORE = {"retention.ms": "7777777"}
AFTER = {"retention.ms": "5"}


class OnlyStep(int):
    """A disk that refuses one step."""

    def __contains__(self, step):
        return step == self


class FromStep(int):
    """A disk that refuses everything from a step on."""

    def __contains__(self, step):
        return step >= self


class Twice(int):
    """A disk that refuses a step and, after two that it took, all others: what takes it back is refused."""

    def __contains__(self, step):
        return step == self or step >= self + 3


def made(name="a"):
    disk = SimulatedDisk()
    directory = DataDirectory(DATA, disk=disk)
    topic = directory.create_topic(name, 2, BEFORE)
    commit(topic.partitions[0], batch(b"acked"))
    return disk, directory


def failures(change):
    """Every way in which a disk refuses some of a change: what the disk is, the directory, and the error."""
    disk, directory = made()
    first = disk.steps
    change(directory)
    for step, failing in itertools.product(range(first, disk.steps), (OnlyStep, FromStep, Twice)):
        broken, directory = made()
        assert broken.steps == first
        broken.failing_steps = failing(step)
        try:
            change(directory)
            error = None
        except DiskError as refused:
            error = refused
        yield broken, directory, error


def restarts(disk):
    """What is found after a kill, and after power cuts that lose all or some of what was not synced."""
    yield DataDirectory(DATA, disk=disk.after_power_cut())
    for seed in range(3):
        yield DataDirectory(DATA, disk=disk.after_power_cut(random.Random(seed)))
    yield DataDirectory(DATA, disk=disk.after_kill())


def values(topic, partition=0):
    return [record.value for record in read_all(topic.partitions[partition])]


def appended(topic, value):
    """Whether the topic takes a record now."""
    try:
        commit(topic.partitions[0], batch(value))
    except DiskError:
        return False
    return True


def test_a_deletion_that_fails_leaves_the_topic_and_its_records():
    outcomes = set()
    for disk, directory, error in failures(lambda directory: directory.delete_topic("a")):
        disk.failing_steps = ()
        outcomes.add(error is None)
        if error is None:
            assert "a" not in directory.topics
            new = directory.create_topic("a", 1)
            assert appended(new, b"new")
            assert [values(again.topics["a"]) for again in restarts(disk)] == [[b"new"]] * 5
            continue
        topic = directory.topics["a"]
        assert values(topic) == [b"acked"]
        with pytest.raises(RequestError, match="exists"):
            directory.create_topic("a", 1)
        assert appended(topic, b"later")  # also where the taking back had failed, by now it did not
        assert not directory.unsettled
        for again in restarts(disk):
            assert (again.topics["a"].id, values(again.topics["a"])) == (topic.id, [b"acked", b"later"])
        directory.delete_topic("a")
        assert not directory.topics
        assert disk.list(DATA / "topics") == {}
    assert outcomes == {True, False}


def test_where_a_deletion_can_neither_be_done_nor_taken_back_nothing_more_is_acknowledged():
    unsettled = 0
    for disk, directory, error in failures(lambda directory: directory.delete_topic("a")):
        disk.failing_steps = ()
        if error is None or not directory.unsettled:
            continue
        unsettled += 1
        assert directory.unsettled == ("a",)
        assert directory.topics["a"].is_being_deleted
        assert not appended(directory.topics["a"], b"later")
        assert values(directory.topics["a"]) == [b"acked"]
        for again in restarts(disk):
            assert "a" not in again.topics or values(again.topics["a"]) == [b"acked"]
    assert unsettled


def test_a_deletion_that_is_durable_is_no_failure_because_files_could_not_be_removed(caplog):
    disk, directory = made()
    doomed = directory.topics["a"].path
    steps = disk.steps
    disk.failing_steps = FromStep(steps + 2)  # behind the rename and its sync
    directory.delete_topic("a")
    assert "a" not in directory.topics
    assert f".deleted-{doomed.name} could not be removed" in caplog.text
    disk.failing_steps = ()
    again = disk.after_power_cut()
    assert not DataDirectory(DATA, disk=again).topics
    assert again.list(DATA / "topics") == {}


def test_a_creation_that_fails_leaves_no_topic_and_its_name_free():
    for disk, directory, error in failures(lambda directory: directory.create_topic("b", 2, AFTER)):
        disk.failing_steps = ()
        assert error is not None  # every step of it counts
        assert "b" not in directory.topics
        for again in restarts(disk) if not directory.unsettled else ():
            assert "b" not in again.topics
        topic = directory.create_topic("b", 1)
        assert appended(topic, b"new")
        for again in restarts(disk):
            assert (again.topics["b"].id, values(again.topics["b"])) == (topic.id, [b"new"])


@pytest.mark.parametrize(
    "change",
    [
        lambda directory: directory.add_partitions("a", 4),
        lambda directory: directory.alter_config("a", AFTER),
    ],
    ids=["partitions", "configuration"],
)
def test_a_change_that_fails_leaves_the_topic_as_it_was(change, caplog):
    def state(directory):
        topic = directory.topics["a"]
        return len(topic.partitions), topic.overrides, topic.partitions[0].config.retention_ms

    before = state(made()[1])
    _, reference = made()
    change(reference)
    after = state(reference)
    for disk, directory, error in failures(change):
        disk.failing_steps = ()
        assert state(directory) == (after if error is None else before)
        assert appended(directory.topics["a"], b"later")
        doubtful = "after a restart the old or the new may hold" in caplog.text
        for again in restarts(disk):
            assert state(again) == (after if error is None else before) or doubtful
            assert values(again.topics["a"]) == [b"acked", b"later"]
        if error is not None:
            change(directory)
            assert [state(again) for again in restarts(disk)] == [after] * 5
        caplog.clear()


def test_a_rename_that_a_real_disk_refuses_leaves_the_topic_as_it_was(tmp_path):
    directory = DataDirectory(tmp_path)
    topic = directory.create_topic("a", 1)
    commit(topic.partitions[0], batch(b"acked"))
    obstacle = tmp_path / "topics" / f".deleted-{topic.id}" / "in the way"
    obstacle.mkdir(parents=True)
    with pytest.raises(DiskError, match="not empty"):
        directory.delete_topic("a")
    assert directory.topics["a"] is topic
    assert appended(topic, b"later")
    directory.close()
    again = DataDirectory(tmp_path)
    assert values(again.topics["a"]) == [b"acked", b"later"]
    again.delete_topic("a")
    assert list((tmp_path / "topics").iterdir()) == []
    again.close()


def test_a_partition_that_was_read_only_before_a_failed_deletion_stays_so():
    disk, directory = made()
    log = directory.topics["a"].partitions[0]
    log.append(batch(b"lost"), now_ms=1)
    disk.failing_syncs = 1
    with pytest.raises(DiskError, match="read-only"):
        log.commit()
    disk.failing_steps = OnlyStep(disk.steps)
    with pytest.raises(DiskError):
        directory.delete_topic("a")
    assert "read-only" in str(log.failed)


def test_two_folders_of_one_topic_are_named_and_nothing_is_changed(tmp_path):
    directory = DataDirectory(tmp_path)
    first, second = directory.create_topic("a", 1).path, directory.create_topic("b", 1).path
    directory.close()
    (second / "topic.json").write_bytes((first / "topic.json").read_bytes())
    (tmp_path / "topics" / ".deleted-x").mkdir()
    with pytest.raises(ConfigError) as refused:
        DataDirectory(tmp_path)
    for told in (str(first), str(second), "'a'", "move the other out", "start again"):
        assert told in str(refused.value)
    assert (tmp_path / "topics" / ".deleted-x").exists()


@pytest.mark.parametrize("name", ["notes", "copy of a topic", ".hidden"])
def test_what_is_no_topic_is_named_with_what_to_do(tmp_path, name):
    DataDirectory(tmp_path).close()
    (tmp_path / "topics" / name).mkdir()
    with pytest.raises(ConfigError, match=f"topics/{name} is not a topic's folder.*move it out"):
        DataDirectory(tmp_path)
    assert (tmp_path / "topics" / name).exists()


def test_another_spelling_of_a_topics_id_is_no_second_topic_of_that_id(tmp_path):
    directory = DataDirectory(tmp_path)
    path = directory.create_topic("a", 1).path
    directory.close()
    path.rename(path.with_name(path.name.upper()))
    with pytest.raises(ConfigError, match=path.name.upper()):
        DataDirectory(tmp_path)


def test_what_a_file_system_keeps_for_itself_is_left_alone(tmp_path):
    directory = DataDirectory(tmp_path)
    directory.create_topic("a", 1)
    directory.close()
    (tmp_path / "topics" / "lost+found").mkdir()
    (tmp_path / "topics" / ".snapshot").mkdir()
    again = DataDirectory(tmp_path)
    assert list(again.topics) == ["a"]
    assert (tmp_path / "topics" / "lost+found").exists()
    assert (tmp_path / "topics" / ".snapshot").exists()
    again.close()
