"""What a capture is declared with; nothing secret may be in it."""

import pytest

from headrace.capture import CaptureSpec, absolute_url, open_source, parse_spec
from headrace.errors import ConfigError


def test_a_spec_survives_being_stored():
    spec = CaptureSpec(name="shop", url="sqlite:///shop.db", tables=("a", "b"), outbox=("o",))
    assert parse_spec(spec.to_json()) == spec


def test_declarations_of_one_capture_are_merged_by_table():
    one = CaptureSpec(name="shop", url="sqlite:///shop.db", tables=("a",))
    other = CaptureSpec(name="shop", url="sqlite:///shop.db", tables=("b", "a"))
    assert one.merged(other).tables == ("b", "a")
    assert one.merged(None) == one


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"name": "a.b"}, "must be made of"),
        ({"url": "oracle://here"}, "begins with sqlite"),
        ({"url": "postgresql://me:planted@host/db"}, "a password does not belong in a URL"),
        ({"partitions": 0}, "1 or more"),
    ],
)
def test_what_does_not_fit_is_named_and_no_password_is_repeated(fields, reason):
    with pytest.raises(ConfigError, match=reason) as raised:
        CaptureSpec(**{"name": "shop", "url": "sqlite:///shop.db", **fields})
    assert "planted" not in str(raised.value)


def test_a_file_is_named_with_its_whole_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert absolute_url("sqlite:///shop.db") == f"sqlite:///{tmp_path}/shop.db"
    assert absolute_url("sqlite:////srv/shop.db") == "sqlite:////srv/shop.db"
    with pytest.raises(ConfigError, match="names no file"):
        absolute_url("sqlite://")


def test_a_reference_that_leads_nowhere_is_named(monkeypatch):
    monkeypatch.delenv("NO_SUCH_PASSWORD", raising=False)
    spec = CaptureSpec(name="shop", url="postgresql://me@127.0.0.1/db?password=env:NO_SUCH_PASSWORD")
    with pytest.raises(ConfigError, match="NO_SUCH_PASSWORD is not set"):
        open_source(spec)
