"""What a run publishes at a URL, and the copy that others read."""

import contextlib

import pytest

from headrace.app.status import FollowedFolder, is_running
from headrace.app.status.published import Publisher
from headrace.errors import ConfigError, FencedError
from headrace.objects import open_objects


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def url(tmp_path):
    return f"file://{tmp_path}/objects"


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "app.json").write_text("an application")
    return folder


def test_a_copy_has_the_files_of_the_run_and_runs_while_its_beat_changes(url, data):
    publisher, clock = Publisher(url, data), Clock()
    publisher.publish(b"1")
    with contextlib.closing(FollowedFolder(url, now=clock)) as followed:
        assert (followed.path / "app.json").read_text() == "an application"
        assert not (followed.path / "status.json").exists()
        assert is_running(followed.path)
        (data / "status.json").write_text("well")
        clock.now += 14
        publisher.publish(b"2")
        followed.refresh()
        assert (followed.path / "status.json").read_text() == "well"
        clock.now += 14
        followed.refresh()
        assert is_running(followed.path)
        clock.now += 2
        followed.refresh()
        assert not is_running(followed.path)
        publisher.publish(b"3")
        followed.refresh()
        assert is_running(followed.path)


def test_a_run_that_ends_says_so(url, data):
    publisher = Publisher(url, data)
    publisher.start(lambda: None)
    (data / "status.json").write_text("ended")
    publisher.close()
    publisher.close()
    with contextlib.closing(FollowedFolder(url)) as followed:
        assert not is_running(followed.path)
        assert (followed.path / "status.json").read_text() == "ended"


def test_a_run_that_was_replaced_publishes_nothing_more(url, data):
    def fenced():
        raise FencedError("so this run stops")

    open_objects(url).put("app.json", [b"of the new run"])
    publisher = Publisher(url, data)
    publisher.start(fenced)
    publisher.close()
    assert open_objects(url).get("app.json") == b"of the new run"
    assert open_objects(url).get("beat") is None


def test_where_nobody_has_published_there_is_no_application(url):
    with pytest.raises(ConfigError, match=r"there is no application at file://.*headrace run --data"):
        FollowedFolder(url)
