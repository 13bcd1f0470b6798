"""Subscribers of a view: cut at random, restarted consoles, rebuilds; nothing missed, nothing twice."""

import json
import random
import threading
import time

import pytest
from tests.integration.console.conftest import row
from tests.integration.console.http_client import Events, ask
from tests.integration.console.shop import Shop
from websockets.sync.client import connect

from headrace.testing.console import ConsoleProcess

PATH = "/v1/views/revenue/changes"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tmp_path_factory.mktemp("changes")


@pytest.fixture(scope="module")
def console(our_log, data):
    with ConsoleProcess(our_log.bootstrap_servers, data=data, heartbeat_ms=300) as process:
        yield process


@pytest.fixture
def shop(our_log, data):
    """A view of this test's own, with one change."""
    made = Shop(data, our_log.bootstrap_servers)
    made.apply([row("eu", 0, 0)])
    return made


class Subscriber(threading.Thread):
    """Follows a view, is cut after a random number of events, and resumes as a browser does."""

    def __init__(self, console, until, seed) -> None:
        super().__init__(daemon=True)
        self._console, self._until, self._random = console, until, random.Random(seed)
        self.seen: list[int] = []
        self.cuts = 0
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            last = "0"
            while not self.seen or self.seen[-1] < self._until:
                last = self._follow(last)
        except Exception as error:
            self.failure = error

    def _follow(self, last: str) -> str:
        left = self._random.randint(1, 6) if self.seen else 1  # everybody is cut at least once
        try:
            with Events(self._console.url, PATH, last_id=last) as events:
                for event in events:
                    assert event.name in ("start", "changes"), event
                    last = event.id
                    if event.name == "changes":
                        self.seen += [each["sequence"] for each in event.data["changes"]]
                        left -= 1
                    if left == 0 or (self.seen and self.seen[-1] >= self._until):
                        break
        except (OSError, ValueError):
            pass  # the console is away for a moment, or ended amid an event
        self.cuts += 1
        return last


def wait_all_began(subscribers):
    """However slow the console is: the last batch is not in the first event of anybody."""
    deadline = time.monotonic() + 120
    while not all(each.seen for each in subscribers):
        assert time.monotonic() < deadline, [each.failure for each in subscribers if not each.seen]
        time.sleep(0.01)


def followed_through(console, shop, *, subscribers, batches, restarts=0, seed=None):
    """Subscribers that are cut at random while batches come; what each has seen."""
    seed = random.randrange(1 << 30) if seed is None else seed
    print(f"seed {seed}")
    choose = random.Random(seed)
    sizes = [choose.randint(1, 20) for _ in range(batches)]
    until = 1 + sum(sizes)
    found = [Subscriber(console, until, seed + index) for index in range(subscribers)]
    for each in found:
        each.start()
    pauses = threading.Event()
    for number, size in enumerate(sizes):
        if number == batches - 1:
            wait_all_began(found)
        shop.apply([row("eu", minute, number) for minute in range(size)])
        pauses.wait(choose.random() / 20)
        if restarts and number % (batches // (restarts + 1)) == batches // (restarts + 1) - 1:
            console.kill()
            console.start()
    for each in found:
        each.join(200)
        assert not each.is_alive(), f"seed {seed}: a subscriber waits after {each.seen[-1:]} of {until}"
        assert each.failure is None, f"seed {seed}: {each.failure!r}"
        assert each.seen == list(range(1, until + 1)), f"seed {seed}"
    assert sum(each.cuts for each in found) > subscribers


def test_subscribers_cut_at_random_miss_nothing_and_see_nothing_twice(console, shop):
    followed_through(console, shop, subscribers=20, batches=40)


@pytest.mark.slow
def test_a_hundred_subscribers_cut_at_random_with_a_console_that_is_killed(console, shop):
    followed_through(console, shop, subscribers=100, batches=200, restarts=3)


def test_a_killed_console_is_resumed_from_after_its_restart(console, shop):
    followed_through(console, shop, subscribers=3, batches=12, restarts=1)


def test_a_subscriber_that_was_cut_before_its_first_change_misses_none(console, shop):
    with Events(console.url, PATH) as events:
        start = next(iter(events))
    assert (start.name, start.id) == ("start", "1")
    shop.apply([row("eu", 0, 2)])
    with Events(console.url, PATH, last_id=start.id) as events:
        stream = iter(events)
        next(stream)
        (change,) = next(stream).data["changes"]
    assert (change["sequence"], change["kind"], change["after"]["orders"]) == (2, "update", 2)


def test_a_rebuilt_view_resets_its_subscribers_who_read_it_again(console, shop):
    with Events(console.url, PATH) as events:
        stream = iter(events)
        next(stream)
        shop.begin("second")
        shop.apply([row("us", 0, 7), row("us", 1, 8)])
        event = next(stream)
        assert event.name == "reset"
        again = ask(console.url, "GET", "/v1/views/revenue/rows").json
        assert again["sequence"] == event.data["sequence"] == int(event.id)
        assert [each["orders"] for each in again["rows"]] == [7, 8]
        shop.apply([row("us", 0, 9)])
        (change,) = next(stream).data["changes"]
    assert change["sequence"] == again["sequence"] + 1


def test_changes_that_are_no_longer_kept(our_log, data, console):
    shop = Shop(data, our_log.bootstrap_servers, keep_changes=5)
    shop.apply([row("eu", minute, 1) for minute in range(20)])
    gone = ask(console.url, "GET", PATH, since=3)
    assert (gone.status, gone.json["type"]) == (410, "urn:headrace:problem:changes-gone")
    page = ask(console.url, "GET", PATH, since=15).json
    assert [each["sequence"] for each in page["changes"]] == [16, 17, 18, 19, 20]
    with Events(console.url, PATH, last_id="3") as events:
        stream = iter(events)
        assert [next(stream).name for _ in range(2)] == ["start", "reset"]


@pytest.mark.parametrize("since", ["x", "-1", "1.5", "9" * 30])
def test_what_is_no_number_of_a_change(console, shop, since):
    assert ask(console.url, "GET", PATH, since=since).status == 400


def test_a_number_from_the_future_is_a_reset(console, shop):
    with Events(console.url, PATH, last_id="999") as events:
        stream = iter(events)
        next(stream)
        event = next(stream)
    assert (event.name, event.id) == ("reset", "1")


def test_a_web_socket_brings_the_same_changes(console, shop):
    with connect(console.url.replace("http", "ws") + PATH + "?since=0", open_timeout=60) as socket:
        start, changes = json.loads(socket.recv(30)), json.loads(socket.recv(30))
        assert (start["event"], changes["event"], changes["id"]) == ("start", "changes", "1")
        shop.apply([row("eu", 0, 5), row("eu", 1, 6)])
        message = json.loads(socket.recv(30))
    assert [each["sequence"] for each in message["changes"]] == [2, 3]


def test_a_silent_subscription_shows_that_it_lives(console, shop):
    with Events(console.url, PATH) as events:
        lines = [events._response.readline() for _ in range(9)]
    assert b": still here\n" in lines


def test_a_store_without_changes_says_so(our_log, data, console):
    import dataclasses

    from headrace.app.status.description import StoreDescription, read_description, write_description
    from headrace.views import open_store

    shop = Shop(data, our_log.bootstrap_servers)
    url = f"parquet:///{data / 'parquet'}"
    open_store(url).prepare(shop.schema)
    described = read_description(data)
    (view,) = described.views
    view = dataclasses.replace(view, store=StoreDescription(url=url))
    write_description(data, dataclasses.replace(described, views=(view,)))
    answer = ask(console.url, "GET", PATH)
    assert (answer.status, answer.json["type"]) == (409, "urn:headrace:problem:no-changes")
    assert ask(console.url, "GET", "/v1/views/revenue/rows").json["rows"] == []
