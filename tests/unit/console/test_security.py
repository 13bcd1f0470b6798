import pytest

from headrace.console.security import (
    LOCAL,
    NOBODY,
    Hosts,
    Principal,
    Role,
    presented_token,
    refusal_by_origin,
    refusal_by_role,
)

LOOPBACK = Hosts.of("127.0.0.1")
PUBLIC = Hosts.of("0.0.0.0", ["console.example.org"])
BY_TOKEN = Principal("ada", Role.WRITER, by_token=True)


def refusal(headers, *, hosts=LOOPBACK, principal=LOCAL, changes=True, websocket=False):
    found = refusal_by_origin(
        hosts=hosts, headers=headers, principal=principal, changes=changes, websocket=websocket
    )
    return None if found is None else found.to_json()["type"].rpartition(":")[2]


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8080", "localhost", "LOCALHOST:9", "[::1]:8080", "127.0.0.2", "127.0.0.1"]
)
def test_a_console_on_loopback_is_reached_by_names_of_loopback(host):
    assert LOOPBACK.allows(host)


@pytest.mark.parametrize(
    "host",
    [
        None,
        "",
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "192.168.1.7",
        "localhost:x",
        "user@localhost",
        "localhost/evil",
        "local host",
        "[::1",
        "localhost?x",
    ],
)
def test_any_other_name_is_refused_on_loopback(host):
    assert not LOOPBACK.allows(host)


def test_beyond_loopback_addresses_and_names_that_were_allowed_reach_it():
    assert PUBLIC.allows("192.168.1.7:8080")
    assert PUBLIC.allows("console.example.org")
    assert not PUBLIC.allows("rebound.evil.example")


def test_a_program_needs_no_header_of_a_page():
    assert refusal({"host": "localhost"}) is None


def test_reading_needs_the_right_host_alone():
    assert refusal({"host": "localhost", "origin": "https://evil.example"}, changes=False) is None
    assert refusal({"host": "evil.example"}, changes=False) == "wrong-host"


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:9999"},
        {"origin": "http://localhost.evil.example"},
        {"origin": "file://"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "http://localhost:8080", "sec-fetch-site": "cross-site"},
    ],
)
@pytest.mark.parametrize("principal", [LOCAL, BY_TOKEN])
def test_pages_of_other_sites_may_change_nothing_nor_open_a_socket(headers, principal):
    headers = {"host": "localhost:8080", "headrace-request": "1", **headers}
    assert refusal(headers, principal=principal) == "foreign-origin"
    assert refusal(headers, principal=principal, changes=False, websocket=True) == "foreign-origin"


def test_the_own_page_must_send_the_header_that_no_form_can():
    page = {"host": "localhost:8080", "origin": "http://localhost:8080"}
    assert refusal(page) == "no-request-header"
    assert refusal({**page, "headrace-request": "1"}) is None
    assert refusal({"host": "localhost:8080", "sec-fetch-site": "same-origin"}) == "no-request-header"


def test_a_bearer_token_stands_for_the_header():
    page = {"host": "localhost:8080", "origin": "http://localhost:8080"}
    assert refusal(page, principal=BY_TOKEN) is None


def test_behind_a_proxy_with_tls_the_origin_is_https():
    headers = {
        "host": "console.example.org",
        "origin": "https://console.example.org",
        "headrace-request": "1",
    }
    assert refusal(headers, hosts=PUBLIC) is None


@pytest.mark.parametrize("needed", list(Role))
@pytest.mark.parametrize("role", list(Role))
def test_a_role_may_do_what_those_below_it_may(role, needed):
    found = refusal_by_role(Principal("ada", role), needed)
    if role >= needed:
        assert found is None
    else:
        assert found.status == (401 if role == Role.NOBODY else 403)


def test_who_must_log_in_is_told_how():
    assert "Bearer" in refusal_by_role(NOBODY, Role.READER).headers["WWW-Authenticate"]


@pytest.mark.parametrize(
    ("headers", "cookies", "found"),
    [
        ({}, {}, (None, False)),
        ({"authorization": "Bearer abc"}, {}, ("abc", True)),
        ({"authorization": "bearer  abc "}, {"headrace_session": "old"}, ("abc", True)),
        ({"authorization": "Basic abc"}, {"headrace_session": "cookie"}, ("cookie", False)),
        ({"authorization": "Bearer "}, {"headrace_session": "cookie"}, ("cookie", False)),
    ],
)
def test_where_a_token_is_looked_for(headers, cookies, found):
    assert presented_token(headers, cookies) == found
