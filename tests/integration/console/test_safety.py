"""Who may do what: hosts, origins, tokens, roles; secrets; and a process that ends as it should."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from urllib.parse import urlsplit

import pytest
from tests.integration.console.http_client import Events, ask
from tests.integration.standstill import judged
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from headrace.console.users import add_token, remove_token
from headrace.testing.console import ConsoleProcess


@pytest.fixture(scope="module")
def users(our_log, shop, tmp_path_factory):
    """A console with users: its url, and a token of each role."""
    path = tmp_path_factory.mktemp("users") / "users.json"
    tokens = {role: add_token(path, f"the-{role}", role) for role in ("reader", "writer", "admin")}
    with ConsoleProcess(our_log.bootstrap_servers, data=shop.data, users=path) as console:
        yield console, tokens, path


def as_(token):
    return {"Authorization": f"Bearer {token}"}


# --- where a request comes from ------------------------------------------------------------------


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "10.0.0.1"])
@pytest.mark.parametrize("path", ["/", "/v1/views", "/healthz", "/static/js/main.js"])
def test_a_name_that_was_pointed_here_reaches_nothing(console, host, path):
    answer = ask(console.url, "GET", path, headers={"Host": host})
    assert (answer.status, answer.json["type"]) == (421, "urn:headrace:problem:wrong-host")


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1"])
def test_pages_of_other_sites_change_nothing(console, get, origin):
    before = get("/v1/topics/orders/records").json["position"]
    headers = {"Origin": origin, "Headrace-Request": "1"}
    answer = ask(console.url, "POST", "/v1/topics/orders/records", {"value": 1}, headers)
    assert (answer.status, answer.json["type"]) == (403, "urn:headrace:problem:foreign-origin")
    assert get("/v1/topics/orders/records").json["position"] == before


def test_a_page_of_another_site_opens_no_socket(console):
    address = console.url.replace("http", "ws") + "/v1/topics/orders/records"
    with pytest.raises(InvalidStatus) as refused, connect(address, origin="https://evil.example"):
        pass
    assert refused.value.response.status_code == 403
    with connect(address, origin=console.url) as opened:
        assert json.loads(opened.recv(30))["event"] == "start"


def test_the_own_page_needs_the_header_that_no_form_sends(console, make_topic):
    path = f"/v1/topics/{make_topic('forged')}/records"
    page = {"Origin": console.url, "Sec-Fetch-Site": "same-origin"}
    assert ask(console.url, "POST", path, {"value": 1}, page).status == 403
    assert ask(console.url, "POST", path, {"value": 1}, {**page, "Headrace-Request": "1"}).status == 200


def test_no_other_site_is_allowed_to_read(console):
    answer = ask(console.url, "GET", "/v1/views", headers={"Origin": "https://evil.example"})
    assert not [name for name in answer.headers if name.startswith("access-control-")]
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"


@pytest.mark.parametrize("path", ["/", "/static/js/main.js", "/v1", "/v1/views", "/nowhere", "/metrics"])
def test_every_answer_has_the_headers_that_keep_data_from_becoming_code(console, path):
    headers = ask(console.url, "GET", path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy and "script-src 'self'" in policy
    assert "unsafe" not in policy and "frame-ancestors 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] in ("no-store", "no-cache")


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/..%2fapp.py",
        "/static/%2e%2e/app.py",
        "/static/js/../../app.py",
        "/static//etc/passwd",
        "/static/",
        "/static/js",
        "/static/..\\app.py",
        "/static/index.html%00.js",
    ],
)
def test_only_files_of_the_page_are_served(console, path):
    assert ask(console.url, "GET", path).status == 404


def test_a_file_the_browser_has_is_not_sent_again(console):
    first = ask(console.url, "GET", "/")
    assert first.headers["content-type"] == "text/html; charset=utf-8"
    again = ask(console.url, "GET", "/", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status, again.body) == (304, b"")
    assert ask(console.url, "HEAD", "/").status == 200
    assert ask(console.url, "HEAD", "/v1/views").status == 405


# --- who asks ------------------------------------------------------------------------------------


def test_a_console_with_users_tells_nobody_anything(users):
    console, _, _ = users
    for path in ("/v1/views", "/v1/views/revenue/rows", "/v1/topics/orders/records", "/metrics", "/v1/audit"):
        answer = ask(console.url, "GET", path)
        assert (answer.status, answer.headers["www-authenticate"]) == (401, 'Bearer realm="headrace"')
    with Events(console.url, "/v1/live") as events:
        assert events.status == 401
    with pytest.raises(InvalidStatus), connect(console.url.replace("http", "ws") + "/v1/live"):
        pass
    assert ask(console.url, "GET", "/").status == ask(console.url, "GET", "/healthz").status == 200


@pytest.mark.parametrize(
    ("role", "statuses"),
    [("reader", [200, 403, 403]), ("writer", [200, 200, 403]), ("admin", [200, 200, 200])],
)
def test_roles(users, make_topic, role, statuses):
    console, tokens, _ = users
    topic, headers = make_topic(f"roles-{role}"), as_(tokens[role])
    found = [
        ask(console.url, "GET", f"/v1/topics/{topic}/records", headers=headers).status,
        ask(console.url, "POST", f"/v1/topics/{topic}/records", {"value": 1}, headers).status,
        ask(console.url, "GET", "/v1/audit", headers=headers).status,
    ]
    assert found == statuses


def test_the_audit_topic_names_who_it_was(users, make_topic):
    console, tokens, _ = users
    topic = make_topic("named")
    ask(console.url, "POST", f"/v1/topics/{topic}/records", {"value": 1}, as_(tokens["writer"]))
    ask(console.url, "POST", f"/v1/topics/{topic}/records", {"value": 1}, as_(tokens["reader"]))
    ask(console.url, "POST", f"/v1/topics/{topic}/records", {"value": 1})
    entries = ask(console.url, "GET", "/v1/audit", headers=as_(tokens["admin"]), limit=5).json["entries"]
    found = [(each["who"], each["role"], each["outcome"]) for each in entries if each["target"] == topic]
    assert found == [("the-reader", "reader", "refused"), ("the-writer", "writer", "done")]


def test_a_browser_logs_in_with_a_cookie_that_no_script_reads(users):
    console, tokens, _ = users
    page = {"Origin": console.url, "Headrace-Request": "1"}
    assert ask(console.url, "GET", "/v1/session").json["login"] == "needed"
    assert ask(console.url, "POST", "/v1/login", {"token": "hr_wrong"}, page).status == 401
    answer = ask(console.url, "POST", "/v1/login", {"token": tokens["writer"]}, page)
    assert answer.json == {"name": "the-writer", "role": "writer", "login": "done"}
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie
    with_cookie = {"Cookie": cookie.partition(";")[0]}
    assert ask(console.url, "GET", "/v1/views", headers=with_cookie).status == 200
    assert ask(console.url, "GET", "/v1/session", headers=with_cookie).json["name"] == "the-writer"
    # The cookie alone does not make a change: a page must send the header too.
    forged = {**with_cookie, "Origin": console.url}
    assert ask(console.url, "POST", "/v1/topics/orders/records", {"value": 1}, forged).status == 403
    out = ask(console.url, "POST", "/v1/logout", {}, {**with_cookie, **page})
    assert 'headrace_session=""' in out.headers["set-cookie"]


def test_a_removed_token_is_refused_without_a_restart(users):
    console, _, path = users
    token = add_token(path, "leaver", "reader")
    deadline = time.monotonic() + 60
    while ask(console.url, "GET", "/v1/views", headers=as_(token)).status != 200:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    remove_token(path, "leaver")
    while ask(console.url, "GET", "/v1/views", headers=as_(token)).status != 401:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_what_is_refused_again_and_again_is_summed_up_in_the_audit_topic(our_log, tmp_path):
    path = tmp_path / "users.json"
    tokens = {role: add_token(path, f"often-{role}", role) for role in ("reader", "admin")}
    settings = {"users": path, "max_refusals_audited": 3}
    with ConsoleProcess(our_log.bootstrap_servers, **settings) as console:
        for _ in range(25):
            refused = ask(console.url, "POST", "/v1/topics", {"name": "no"}, as_(tokens["reader"]))
            assert refused.status == 403
            assert ask(console.url, "POST", "/v1/topics", {"name": "no"}).status == 401
        assert console.stop() == 0
        console.start()
        entries = ask(console.url, "GET", "/v1/audit", headers=as_(tokens["admin"]), limit=50).json["entries"]
    mine = [each for each in entries if each["who"] == "often-reader"]
    sums = [each["notes"]["refused"] for each in mine if each["action"].endswith("more refused")]
    assert len(mine) - len(sums) + sum(sums) == 25
    assert len(mine) <= 2 * (3 + 1)  # two minutes, if it was the end of one
    assert [each for each in entries if each["status"] == 401] == [], "anybody could fill the disk so"


def test_secrets_are_in_no_message_answer_or_record(our_log, shop, tmp_path, make_topic):
    """A token of a user, one that is wrong, and a secret in a body are sent everywhere, then looked for."""
    path, topic = tmp_path / "users.json", make_topic("secretive")
    token, wrong, body = add_token(path, "ada", "admin"), "hr_PLANTED_WRONG_TOKEN", "PLANTED_BODY"
    answers = []
    with ConsoleProcess(our_log.bootstrap_servers, data=shop.data, users=path) as console:
        for secret in (token, wrong):
            for method, where, sent in (
                ("GET", "/v1/views", None),
                ("GET", "/v1/audit", None),
                ("POST", f"/v1/topics/{topic}/records", {"value": body}),
                ("POST", f"/v1/topics/{topic}/records", {"valeu": body}),
                ("POST", "/v1/topics/nowhere/records", {"value": body}),
                ("POST", "/v1/login", {"token": secret}),
                ("POST", "/v1/login", {"token": [secret]}),
                ("GET", "/nowhere", None),
            ):
                answers.append(ask(console.url, method, where, sent, as_(secret)))
            ask(console.url, "GET", "/v1/views", headers={"Cookie": f"headrace_session={secret}"})
        audit = ask(console.url, "GET", "/v1/audit", headers=as_(token), limit=100)
        console.stop()
        said = console.output() + audit.body.decode() + path.read_text()
    said += "".join(each.body.decode() for each in answers)
    for secret in (token, wrong, body):
        assert secret not in said


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0"])
def test_beyond_loopback_it_asks_for_users_first(our_log, listen):
    command = [sys.executable, "-m", "headrace", "console", "--listen", listen, "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert "--users" in ended.stderr and "--insecure" in ended.stderr


# --- readers that do not read, and the end -------------------------------------------------------


def test_a_reader_that_takes_nothing_is_cut_and_the_others_are_not(our_log, make_topic):
    topic = make_topic("slow")

    def read(limit_s, pulse):
        with ConsoleProcess(our_log.bootstrap_servers, slow_reader_ms=1000 * limit_s) as console:
            stalled = stalled_reader(console, topic, 0, by_socket=False)
            assert stalled.recv(1) == b"H"  # its answer has begun; it takes no more of it
            deadline = time.monotonic() + 60 + limit_s
            while metric(console, "headrace_console_subscribers "):
                assert time.monotonic() < deadline, "the stalled reader was never cut"
                pulse.beat()
            with Events(console.url, f"/v1/topics/{topic}/records?from=earliest") as events:
                seen = 0
                for event in events:
                    pulse.beat()
                    seen += len(event.data.get("records", []))
                    if seen == 60:
                        break
            assert seen == 60
            stalled.close()

    with ConsoleProcess(our_log.bootstrap_servers) as console:
        records = [{"value": "x" * 200_000} for _ in range(4)]
        for _ in range(15):
            ask(console.url, "POST", f"/v1/topics/{topic}/records", {"records": records})
    judged(read, 3, 30)


def metric(console, name):
    lines = ask(console.url, "GET", "/metrics").body.decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(name))


def test_a_hundred_readers_that_take_nothing_hold_no_more_than_the_bound(our_log, make_topic):
    """Each stands at a place of its own, half of them by WebSocket: a page for each would be 40 MiB."""
    topic, count = make_topic("slow-many"), 100
    bounds = {"max_buffered_bytes": 4 << 20, "reader_buffer_bytes": 16 << 10, "event_bytes": 400_000}
    most = bounds["max_buffered_bytes"] + count * (bounds["reader_buffer_bytes"] + 1_000)
    with ConsoleProcess(our_log.bootstrap_servers, slow_reader_ms=60_000, **bounds) as console:
        for each in range(0, count, 10):
            records = [{"value": f"{each + n}:" + "x" * 200_000} for n in range(10)]
            assert ask(console.url, "POST", f"/v1/topics/{topic}/records", {"records": records}).status == 200
        stalled = [stalled_reader(console, topic, offset, by_socket=offset % 2) for offset in range(count)]
        deadline, partition_bounds = time.monotonic() + 200, []
        while metric(console, 'headrace_console_readers_cut_total{reason="full"}') < count // 2:
            assert time.monotonic() < deadline
            partition_bounds.append(metric(console, "headrace_console_buffered_bytes"))
        assert max(partition_bounds, default=0) <= most
        # Whoever was cut goes on after the last event it saw whole.
        last = whole_ids(stalled[0])[-1]
        with Events(console.url, f"/v1/topics/{topic}/records", last_id=last) as events:
            seen = []
            for event in events:
                seen += [each["offset"] for each in event.data.get("records", [])]
                if len(seen) >= count:
                    break
        assert seen == list(range(count))
        for each in stalled:
            each.close()
        assert console.stop() == 0
        assert console.output() == ""


def whole_ids(cut):
    """The ids of the events that came whole before the connection was cut."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while part := cut.recv(65536):
            received += part
    return [each.decode() for each in re.findall(rb"id: (\S+)\ndata: [^\n]*\n\n", received)]


def stalled_reader(console, topic, offset, *, by_socket):
    """A connection that asks for a tail, and never reads."""
    opened = socket.socket()
    opened.settimeout(120)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    opened.connect(("127.0.0.1", console.port))
    upgrade = (
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    )
    opened.sendall(
        f"GET /v1/topics/{topic}/records?partition=0&offset={offset} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"{upgrade if by_socket else 'Accept: text/event-stream' + chr(13) + chr(10)}\r\n".encode()
    )
    return opened


@pytest.mark.parametrize("by_socket", [False, True])
def test_an_event_larger_than_a_readers_buffer_comes_whole(our_log, make_topic, by_socket):
    topic = make_topic(f"large-{by_socket}")
    with ConsoleProcess(our_log.bootstrap_servers, reader_buffer_bytes=1_000) as console:
        path, value = f"/v1/topics/{topic}/records", "ä" * 100_000
        ask(console.url, "POST", path, {"value": value})
        if by_socket:
            url = console.url.replace("http", "ws") + path + "?from=earliest"
            with connect(url, open_timeout=60, max_size=None) as opened:
                opened.recv(60)
                found = json.loads(opened.recv(60))["records"]
        else:
            with Events(console.url, path + "?from=earliest") as events:
                found = next(each for each in events if each.name == "records").data["records"]
        assert [each["value"] for each in found] == [value]


def test_subscriptions_are_bounded(our_log, make_topic):
    path = f"/v1/topics/{make_topic('bounded')}/records"
    with ConsoleProcess(our_log.bootstrap_servers, max_subscribers=2) as console:  # noqa: SIM117
        with Events(console.url, path) as one, Events(console.url, path) as other:
            assert next(iter(one)).name == next(iter(other)).name == "start"
            with Events(console.url, path) as third:
                assert third.status == 503


def test_it_ends_at_once_although_subscribers_are_there(our_log, make_topic):
    path = f"/v1/topics/{make_topic('ending')}/records"
    console = ConsoleProcess(our_log.bootstrap_servers).start()
    with Events(console.url, path) as events, connect(console.url.replace("http", "ws") + path) as opened:
        stream = iter(events)
        assert next(stream).name == "start"
        opened.recv(30)
        assert console.stop() == 0
        assert list(stream) == []  # a whole end, not a broken connection
    assert console.output() == ""


def test_it_ends_with_whoever_started_it(our_log):
    command = [sys.executable, "-m", "headrace", "console", "--json", "--until-stdin-closes"]
    command += ["--listen", "127.0.0.1:0", "--bootstrap", our_log.bootstrap_servers]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    announced = json.loads(process.stdout.readline())
    assert announced["pid"] == process.pid
    assert announced["url"] == f"http://127.0.0.1:{announced['port']}/"
    process.stdin.close()
    assert process.wait(30) == 0
    process.stdout.close()


def test_a_port_that_is_taken_is_said_so(console, our_log):
    command = [sys.executable, "-m", "headrace", "console", "--listen", f"127.0.0.1:{console.port}"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert "--listen" in ended.stderr


def test_a_request_that_is_no_http_harms_nobody(console):
    for noise in (
        b"\x00\xff" * 100,
        b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 100_000,
        b"GET /\r\n\r\n",
    ):
        with socket.create_connection(("127.0.0.1", console.port), timeout=120) as raw:
            try:
                raw.sendall(noise)
                raw.shutdown(socket.SHUT_WR)
                while raw.recv(4096):
                    pass
            except OSError:
                pass
    parts = urlsplit(console.url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=120)
    connection.request("BREW", "/v1/views")
    assert connection.getresponse().status in (405, 403)
    connection.close()
    os.kill(console.pid, signal.SIGCONT)
    assert ask(console.url, "GET", "/healthz").status == 200
