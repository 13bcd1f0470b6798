"""One run of an application at a time on a log: the newest."""

import contextlib
import itertools
import uuid

import pytest

from headrace.app.run.ownership import Owner, Ownership
from headrace.client import Connection
from headrace.client.topics import TopicSettings
from headrace.client.topics.ensure import ensure_topics
from headrace.client.write import OutputRecord, RecordSink
from headrace.errors import FencedError, RetriableError
from headrace.groups import Code
from headrace.testing.broker import running_broker

# As many as a wait of a second and a half meets, which is longer than a look that must not hold up others.
REFUSALS = 5


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


@contextlib.contextmanager
def log_that_loads(folder):
    """A log, and what makes its coordinator of groups refuse the next requests as it does while it loads."""
    with running_broker(folder) as broker:
        journal = broker.services.groups._journal
        serves, counter = journal.check_available, itertools.count(REFUSALS)

        def check_available():
            if next(counter) < REFUSALS:
                raise RetriableError("loading", code=Code.COORDINATOR_LOAD_IN_PROGRESS)
            serves()

        def load():
            nonlocal counter
            counter = itertools.count()
            return lambda: next(counter) > REFUSALS

        journal.check_available = check_available
        yield Connection(bootstrap_servers=f"127.0.0.1:{broker.port}"), load


def test_a_start_waits_for_a_coordinator_that_still_loads(app, tmp_path):
    with log_that_loads(tmp_path / "log") as (log, load), ownership(log, app, tmp_path / "a") as older:
        older.claim()
        with ownership(log, app, tmp_path / "b") as newer:
            has_loaded = load()
            assert newer.claim() == older.owner
            assert has_loaded()
            has_loaded = load()
            assert newer.claim() is None  # to rebuild
            assert has_loaded()


def test_who_opens_a_producer_waits_for_a_coordinator_that_still_loads(app, tmp_path):
    with log_that_loads(tmp_path / "log") as (log, load), ownership(log, app, tmp_path / "a") as owner:
        owner.claim()
        records = RecordSink(log, app, "q1", require_owner=owner.require)
        has_loaded = load()
        records.take_over()
        assert has_loaded()
        has_loaded = load()
        assert records.last_batch() == -1
        assert has_loaded()
        records.close()


def test_whoever_only_looks_does_not_wait(app, tmp_path):
    with log_that_loads(tmp_path / "log") as (log, load), ownership(log, app, tmp_path / "a") as owner:
        owner.claim()
        has_loaded = load()
        with pytest.raises(RetriableError, match="coordinator_not_available"):
            owner.look()
        assert not has_loaded()
