"""One run of an application at a time on a log: the newest."""

import contextlib
import uuid

import pytest

from headrace.app.run.ownership import Owner, Ownership
from headrace.client.topics import TopicSettings
from headrace.client.topics.ensure import ensure_topics
from headrace.client.write import OutputRecord, RecordSink
from headrace.errors import FencedError, RetriableError


@contextlib.contextmanager
def ownership(log, app, folder):
    made = Ownership(log, app, folder)
    try:
        yield made
    finally:
        made.release()


@pytest.fixture
def app():
    return f"app-{uuid.uuid4().hex[:12]}"


def test_the_newer_run_is_told_of_the_older_which_is_fenced(our_log, app, tmp_path):
    with ownership(our_log, app, tmp_path / "a") as older, ownership(our_log, app, tmp_path / "b") as newer:
        assert older.claim() is None
        older.require()
        assert newer.claim() == older.owner
        newer.require()
        with pytest.raises(FencedError, match=rf"{app}.*was started in {tmp_path}/b .*so this run stops"):
            older.require()
        with pytest.raises(FencedError):
            older.claim()  # not back again, for example to rebuild
        older.release()
        newer.require()


def test_what_was_given_back_or_ran_in_the_same_folder_is_not_worth_a_word(our_log, app, tmp_path):
    with ownership(our_log, app, tmp_path / "a") as first:
        first.claim()
    with ownership(our_log, app, tmp_path / "b") as second:
        assert second.claim() is None
        with ownership(our_log, app, tmp_path / "b") as again:  # the first was killed
            assert again.claim() is None


def test_who_is_fenced_writes_nothing_and_the_owner_goes_on_after_one_who_may_not_interfered(
    our_log, app, tmp_path
):
    topic = f"{app}.dead"
    ensure_topics(our_log, {topic: TopicSettings(partitions=1)})
    with ownership(our_log, app, tmp_path / "a") as older, ownership(our_log, app, tmp_path / "b") as newer:
        older.claim()
        of_older = RecordSink(our_log, app, "q1", require_owner=older.require)
        assert of_older.write(0, [OutputRecord(topic, None, b"first")])
        newer.claim()
        of_newer = RecordSink(our_log, app, "q2", require_owner=newer.require)
        of_newer.take_over()
        for _ in range(2):  # fenced by the broker; and as it opens its producer anew
            with pytest.raises(FencedError, match="so this run stops"):
                of_older.write(1, [OutputRecord(topic, None, b"second")])
        # That opening has fenced the owner, who takes the name back.
        with pytest.raises(RetriableError, match="taken over by an older run; try again"):
            of_newer.write(0, [OutputRecord(topic, None, b"second")])
        of_newer.write(0, [OutputRecord(topic, None, b"second")])
        assert of_newer.open() == 0
        of_older.close()
        of_newer.close()


def test_an_owner_comes_back_from_its_text_and_anything_else_is_nobody(tmp_path):
    owner = Owner(data=str(tmp_path))
    assert Owner.from_text(owner.to_text()) == owner
    assert Owner.from_text("") is Owner.from_text("{}") is Owner.from_text("[1") is None
