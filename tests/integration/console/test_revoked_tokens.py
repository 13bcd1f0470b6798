"""Whatever outlives the moment in which it was allowed: streams, reads that wait, bodies on their way."""

import itertools
import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.integration.console.http_client import Events, ask
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from headrace.console.users import add_token, remove_token
from headrace.console.write.tokens import encode_token
from headrace.testing.console import ConsoleProcess

TAIL, CHANGES, LIVE = "/v1/topics/{}/records?from=earliest", "/v1/views/revenue/changes?since=0", "/v1/live"
_names = (f"leaver-{number}" for number in itertools.count())


class Guarded:
    """A console with users, of which some lose their token or their role."""

    def __init__(self, console, path, token):
        self.console, self.path = console, path
        self.url = console.url
        self.admin = {"Authorization": f"Bearer {token}"}

    def newcomer(self, role="reader"):
        """A name, and the header that it is let in with."""
        name = next(_names)
        headers = {"Authorization": f"Bearer {add_token(self.path, name, role)}"}
        self.wait_status(headers, 200)
        return name, headers

    def expel(self, name, headers):
        remove_token(self.path, name)
        self.wait_status(headers, 401)

    def give_role(self, name, role, headers):
        """As an administrator who edits the file."""
        users = json.loads(self.path.read_text())
        (entry,) = [each for each in users["tokens"] if each["name"] == name]
        entry["role"] = role
        self.path.write_text(json.dumps(users))
        deadline = time.monotonic() + 60
        while ask(self.url, "GET", "/v1/session", headers=headers).json["role"] != role:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def wait_status(self, headers, status):
        deadline = time.monotonic() + 60
        while ask(self.url, "GET", "/v1/views", headers=headers).status != status:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def send(self, topic, value):
        sent = ask(self.url, "POST", f"/v1/topics/{topic}/records", {"value": value}, self.admin)
        assert sent.status == 200


@pytest.fixture(scope="module")
def guarded(our_log, shop, tmp_path_factory):
    path = tmp_path_factory.mktemp("users") / "users.json"
    token = add_token(path, "stays", "admin")
    with ConsoleProcess(our_log.bootstrap_servers, data=shop.data, users=path, heartbeat_ms=500) as console:
        yield Guarded(console, path, token)


@pytest.fixture(scope="module")
def topic(guarded, make_topic):
    made = make_topic("followed")
    guarded.send(made, "public")
    return made


def events_of(url, path, headers):
    """Name and body of each event, until the stream ends."""
    with Events(url, path, headers=headers) as events:
        for event in events:
            yield event.name, event.data


def messages_of(url, path, headers):
    """The same over a WebSocket."""
    with connect(url.replace("http", "ws") + path, additional_headers=headers, open_timeout=60) as opened:
        while True:
            try:
                message = json.loads(opened.recv(60))
            except ConnectionClosed:
                return
            yield message["event"], message


@pytest.mark.parametrize("follow", [events_of, messages_of], ids=["events", "messages"])
@pytest.mark.parametrize("path", [TAIL, CHANGES, LIVE], ids=["tail", "changes", "live"])
def test_a_stream_ends_with_a_problem_when_its_token_is_removed(guarded, topic, path, follow):
    name, headers = guarded.newcomer()
    stream = follow(guarded.url, path.format(topic), headers)
    first = next(stream)
    assert first[0] in ("start", "status")
    guarded.expel(name, headers)
    guarded.send(topic, f"said behind the back of {name}")
    rest = list(stream)
    assert name not in json.dumps([body for _, body in rest])
    last, problem = rest[-1]
    assert (last, problem["status"]) == ("problem", 401)
    assert "headrace console token add" in problem["next"]


def test_a_stream_goes_on_with_another_role_that_is_enough(guarded, topic):
    name, headers = guarded.newcomer("admin")
    stream = events_of(guarded.url, TAIL.format(topic), headers)
    next(stream)
    guarded.give_role(name, "reader", headers)
    guarded.send(topic, f"for {name}")
    assert any(f"for {name}" in json.dumps(body) for _, body in stream)


def test_a_read_that_waits_for_a_write_is_refused_when_its_token_is_removed(guarded):
    name, headers = guarded.newcomer()
    never = encode_token({"orders": {0: 1_000_000}})
    with ThreadPoolExecutor(1) as waiting:
        path = "/v1/views/revenue/rows"
        answer = waiting.submit(ask, guarded.url, "GET", path, headers=headers, token=never, wait_ms=60_000)
        guarded.expel(name, headers)
        assert answer.result(50).status == 401


def test_a_change_whose_body_outlives_the_role_is_refused(guarded, topic):
    name, headers = guarded.newcomer("writer")
    body = json.dumps({"value": f"too late of {name}"}).encode()
    with socket.create_connection(("127.0.0.1", guarded.console.port), timeout=60) as opened:
        opened.sendall(
            f"POST /v1/topics/{topic}/records HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
            f"Authorization: {headers['Authorization']}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body[:5]
        )
        guarded.give_role(name, "reader", headers)
        opened.sendall(body[5:])
        answer = b"".join(iter(lambda: opened.recv(65536), b""))
    assert answer.split(b"\r\n")[0].split()[1] == b"403"
    page = ask(guarded.url, "GET", f"/v1/topics/{topic}/records", headers=guarded.admin, limit=100)
    assert name not in page.body.decode()
    audit = ask(guarded.url, "GET", "/v1/audit", headers=guarded.admin, limit=50).json["entries"]
    assert [each["status"] for each in audit if each["who"] == name] == [403]
