"""The dialogue itself, by a bare connection: what comes before login, limits, refusals, names."""

import contextlib
import importlib.util
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headrace.broker.access import offline
from headrace.broker.apis.versions import VERSIONS
from headrace.client.connect.channel import Channel
from headrace.errors import CorruptionError, RetriableError
from headrace.testing.broker import BrokerProcess, running_broker
from headrace.wire import Api, encode_request
from headrace.wire.schemas import MESSAGES

BODIES = Path(__file__).parents[2] / "unit" / "broker" / "access" / "bodies.py"
_spec = importlib.util.spec_from_file_location("bodies", BODIES)
bodies = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(bodies)

BEFORE_LOGIN = {Api.API_VERSIONS, Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE}
ANY_ACL = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """A broker on loopback that wants a login but no TLS."""
    data = tmp_path_factory.mktemp("sasl")
    for user in ("admin", "alice"):
        offline.add_user(data, user, f"password of {user}")
    with running_broker(data, authenticate=True, super_users="admin") as running:
        yield running


def channel(broker):
    return Channel("127.0.0.1", broker.port, client_id="test", timeout_ms=60_000)


def logged_in(broker, user, password=None):
    opened = channel(broker)
    assert opened.request(Api.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}).error_code == 0
    answer = opened.request(Api.SASL_AUTHENTICATE, 2, {"auth_bytes": plain(user, password)})
    assert answer.error_code == 0, answer.error_message
    return opened


def plain(user, password=None):
    return f"\0{user}\0{password or f'password of {user}'}".encode()


# --- before login ---------------------------------------------------------------------------------


def test_nothing_is_served_before_login(broker):
    def is_closed(api):
        version = VERSIONS[api].lowest
        fields = bodies.filled(MESSAGES[api].request, version, "x")
        try:
            channel(broker).request(api, version, fields)
        except RetriableError as error:
            return "closed the connection" in str(error) or "reset" in str(error)
        return False

    apis = sorted(VERSIONS.keys() - BEFORE_LOGIN)
    with ThreadPoolExecutor(len(apis)) as pool:
        assert [api for api, closed in zip(apis, pool.map(is_closed, apis), strict=True) if not closed] == []


def test_versions_and_mechanisms_are_told_before_login(broker):
    opened = channel(broker)
    assert opened.request(Api.API_VERSIONS, 2, {}).error_code == 0
    answer = opened.request(Api.SASL_HANDSHAKE, 1, {"mechanism": "GSSAPI"})
    assert answer.error_code == 33
    assert set(answer.mechanisms) == {"SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"}
    assert opened.request(Api.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}).error_code == 0


def test_a_login_without_a_handshake_is_out_of_order(broker):
    assert channel(broker).request(Api.SASL_AUTHENTICATE, 2, {"auth_bytes": plain("alice")}).error_code == 34


def test_a_second_login_is_out_of_order(broker):
    opened = logged_in(broker, "alice")
    assert opened.request(Api.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}).error_code == 34
    assert opened.request(Api.METADATA, 9, {"topics": None}).topics == ()


def test_where_nobody_must_log_in_nobody_can(tmp_path):
    with running_broker(tmp_path) as open_broker:
        opened = channel(open_broker)
        assert opened.request(Api.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}).error_code == 34
        assert opened.request(Api.DESCRIBE_ACLS, 3, ANY_ACL).error_code == 54
        created = {"resource_type": 2, "resource_name": "x", "principal": "User:a", "host": "*"}
        entry = {**created, "operation": 3, "permission_type": 3}
        assert opened.request(Api.CREATE_ACLS, 3, {"creations": [entry]}).results[0].error_code == 54


# Requests of another client while a login is kept waiting for half a second. Were the broker
# itself to wait, it would be the one that waits with it, and one or two about the edges.
SERVED_MEANWHILE = 5


def test_a_failed_login_is_answered_late_and_ends_its_connection_only(broker):
    other, served = logged_in(broker, "alice"), 0
    for _ in range(20):  # others than this broker may have the processors for a moment
        served = max(served, served_during_a_failed_login(broker, other))
        if served > SERVED_MEANWHILE:
            break
    assert served > SERVED_MEANWHILE


def served_during_a_failed_login(broker, other):
    opened, answers, served, asking = channel(broker), [], 0, threading.Event()
    opened.request(Api.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})

    def fail():
        began = time.monotonic()
        asking.set()
        answer = opened.request(Api.SASL_AUTHENTICATE, 2, {"auth_bytes": plain("alice", "wrong")})
        answers.append((answer.error_code, time.monotonic() - began))

    thread = threading.Thread(target=fail)
    thread.start()
    assert asking.wait(60)
    while thread.is_alive():
        other.request(Api.METADATA, 9, {"topics": None})
        served += 1
    thread.join()
    assert answers[0][0] == 58
    assert answers[0][1] >= 0.5
    with pytest.raises(RetriableError):
        opened.request(Api.API_VERSIONS, 2, {})
    return served


@pytest.mark.parametrize("size", [20_000, 1_000_000, 90_000_000])
def test_a_large_frame_before_login_ends_the_connection_at_once(broker, size):
    with socket.create_connection(("127.0.0.1", broker.port), 60) as raw:
        raw.sendall(struct.pack(">ihhi", size, Api.PRODUCE, 9, 1))
        raw.settimeout(60)
        with contextlib.suppress(ConnectionError):
            assert raw.recv(1) == b""
    assert broker.services.memory.held_bytes == 0


def test_whoever_does_not_log_in_in_time_is_disconnected(tmp_path):
    with (
        running_broker(tmp_path, authenticate=True, receive_timeout_ms=300) as strict,
        socket.create_connection(("127.0.0.1", strict.port), 60) as raw,
    ):
        raw.settimeout(60)
        with contextlib.suppress(ConnectionError):
            assert raw.recv(1) == b""


def test_the_first_version_of_the_handshake_has_bare_tokens(broker):
    with socket.create_connection(("127.0.0.1", broker.port), 60) as raw:
        raw.settimeout(60)
        raw.sendall(encode_request(Api.SASL_HANDSHAKE, 0, 1, "old", {"mechanism": "PLAIN"}))
        answer = _frame(raw)
        assert answer[4:6] == b"\0\0"
        raw.sendall(struct.pack(">i", len(plain("alice"))) + plain("alice"))
        assert _frame(raw) == b""
        raw.sendall(encode_request(Api.METADATA, 1, 2, "old", {"topics": None}))
        assert _frame(raw)[:4] == b"\0\0\0\x02"


def _frame(raw):
    (size,) = struct.unpack(">i", _exactly(raw, 4))
    return _exactly(raw, size)


def _exactly(raw, count):
    data = b""
    while len(data) < count:
        chunk = raw.recv(count - len(data))
        assert chunk, "closed"
        data += chunk
    return data


# --- administration -------------------------------------------------------------------------------


def test_users_and_permissions_are_for_administrators(broker):
    alice = logged_in(broker, "alice")
    assert alice.request(Api.DESCRIBE_ACLS, 3, ANY_ACL).error_code == 31
    assert alice.request(Api.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": None}).error_code == 31
    change = {"name": "alice", "mechanism": 1, "iterations": 4096, "salt": b"s", "salted_password": b"x" * 32}
    answer = alice.request(Api.ALTER_USER_SCRAM_CREDENTIALS, 0, {"upsertions": [change]})
    assert [(each.user, each.error_code) for each in answer.results] == [("alice", 31)]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"iterations": 4095}, 93),
        ({"iterations": 10_000_000}, 93),
        ({"name": ""}, 93),
        ({"name": "a\nb"}, 93),
        ({"salted_password": b"short"}, 93),
        ({"salt": b""}, 93),
        ({"mechanism": 3}, 33),
    ],
)
def test_credentials_that_would_be_weak_or_broken_are_refused(broker, change, code):
    given = {"name": "emil", "mechanism": 1, "iterations": 4096, "salt": b"s", "salted_password": b"x" * 32}
    admin = logged_in(broker, "admin")
    answer = admin.request(Api.ALTER_USER_SCRAM_CREDENTIALS, 0, {"upsertions": [{**given, **change}]})
    assert [each.error_code for each in answer.results] == [code]
    described = admin.request(Api.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": [{"name": "emil"}]})
    assert [each.error_code for each in described.results] == [91]


def test_what_cannot_be_deleted_or_is_named_twice_is_refused(broker):
    admin = logged_in(broker, "admin")
    answer = admin.request(
        Api.ALTER_USER_SCRAM_CREDENTIALS, 0, {"deletions": [{"name": "ghost", "mechanism": 1}]}
    )
    assert [each.error_code for each in answer.results] == [91]
    twice = [{"name": "alice", "mechanism": 1}] * 2
    answer = admin.request(Api.ALTER_USER_SCRAM_CREDENTIALS, 0, {"deletions": twice})
    assert [each.error_code for each in answer.results] == [92]
    assert logged_in(broker, "alice")


def test_entries_that_mean_nothing_are_refused_and_the_others_kept(broker):
    admin = logged_in(broker, "admin")
    good = {
        "resource_type": 2,
        "resource_name": "mixed",
        "principal": "User:alice",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    answer = admin.request(Api.CREATE_ACLS, 3, {"creations": [good, {**good, "operation": 12}]})
    assert [each.error_code for each in answer.results] == [0, 42]
    wanted = {**ANY_ACL, "resource_name_filter": "mixed"}
    (found,) = admin.request(Api.DESCRIBE_ACLS, 3, wanted).resources
    assert [each.operation for each in found.acls] == [3]
    (gone,) = admin.request(Api.DELETE_ACLS, 3, {"filters": [wanted]}).filter_results
    assert [each.resource_name for each in gone.matching_acls] == ["mixed"]
    assert admin.request(Api.DESCRIBE_ACLS, 3, wanted).resources == ()


# --- durability -----------------------------------------------------------------------------------


def test_users_and_permissions_survive_kill_9(tmp_path):
    offline.add_user(tmp_path, "admin", "password of admin")
    with BrokerProcess(tmp_path, authenticate=True, super_users="admin") as process:
        entry = {
            "resource_type": 2,
            "resource_name": "kept",
            "principal": "User:alice",
            "host": "*",
            "operation": 3,
            "permission_type": 3,
        }
        admin = logged_in(process, "admin")
        assert admin.request(Api.CREATE_ACLS, 3, {"creations": [entry]}).results[0].error_code == 0
        process.kill()
        process.start()
        admin = logged_in(process, "admin")
        assert [each.resource_name for each in admin.request(Api.DESCRIBE_ACLS, 3, ANY_ACL).resources] == [
            "kept"
        ]


def test_a_damaged_file_keeps_the_broker_from_starting(tmp_path):
    offline.add_user(tmp_path, "admin", "x")
    (tmp_path / "access.json").write_text("{}")
    with pytest.raises(CorruptionError, match=r"access\.json"), running_broker(tmp_path, authenticate=True):
        pass


# --- names ----------------------------------------------------------------------------------------

EVIL = ["../../evil", "/tmp/evil", "..", "evil/../../evil", "a\0b", "..\\evil", "%2e%2e%2fevil"]


@pytest.mark.parametrize("name", EVIL)
def test_names_never_become_paths_in_any_api(tmp_path, name):
    data = tmp_path / "deep" / "data"
    with running_broker(data) as open_broker:
        for api in sorted(VERSIONS.keys() - {Api.JOIN_GROUP}):
            for version in {VERSIONS[api].lowest, VERSIONS[api].highest}:
                with contextlib.suppress(RetriableError):
                    fields = bodies.filled(MESSAGES[api].request, version, name)
                    channel(open_broker).request(api, version, fields)
        assert channel(open_broker).request(Api.METADATA, 9, {"topics": None}).error_code == 0
        found = {path.relative_to(tmp_path) for path in tmp_path.rglob("*")}
        assert not [path for path in found if "evil" in str(path) or ".." in path.parts]
        assert {path.parts[:2] for path in found if len(path.parts) > 1} == {("deep", "data")}
        names = [
            topic.name for topic in channel(open_broker).request(Api.METADATA, 9, {"topics": None}).topics
        ]
        assert all(each.startswith("__") for each in names)
    assert not Path("/tmp/evil").exists()
