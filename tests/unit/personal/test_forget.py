"""Forgetting goes on after a crash at each of its steps, and its receipts hold."""

import json

import pytest

from headrace import crash_points
from headrace.errors import CorruptionError, RequestError
from headrace.personal import KeyStore, check_receipt, forget, pending, public_key, resume
from headrace.personal.forget import FORGET_POINTS, Cleared

MASTER = bytes(range(32))
AT_MS = 1_767_603_600_000


class Crash(BaseException):
    pass


@pytest.fixture
def crash_at(monkeypatch):
    """Makes the process end at a point, as far as the code can tell."""

    def arm(point):
        def watcher(reached):
            if reached == point:
                raise Crash

        monkeypatch.setattr(crash_points, "_watchers", [watcher])

    yield arm


@pytest.fixture
def opened(tmp_path):
    stores = []

    def open_store():
        stores.append(KeyStore(tmp_path / "keys.db", MASTER))
        return stores[-1]

    yield open_store
    for each in stores:
        each.close()


def cleared(subject):
    return Cleared((f"looked for {subject}",), ("a record",))


@pytest.mark.parametrize("point", FORGET_POINTS)
def test_a_crash_at_each_step_is_finished_at_the_next_start(opened, crash_at, monkeypatch, point):
    store = opened()
    sealed, other = store.seal("c-1", "Ann"), store.seal("c-2", "Bob")
    crash_at(point)
    with pytest.raises(Crash):
        forget(store, "c-1", at_ms=AT_MS, clear=cleared)
    monkeypatch.setattr(crash_points, "_watchers", [])
    after = opened()
    [path] = resume(after, cleared)
    assert pending(after) == [] == resume(after, cleared)
    assert (after.open(sealed), after.open(other)) == (None, "Bob")
    receipt = check_receipt(json.loads(path.read_bytes()), public_key(after.signing))
    assert (receipt.subject, receipt.forgotten_at) == ("c-1", "2026-01-05T09:00:00.000Z")
    assert len(receipt.keys) == 1 and not after.has_key_id(bytes.fromhex(receipt.keys[0]))
    assert receipt.steps.count("looked for c-1") == 1
    assert receipt.left == ("a record",)


def test_all_steps_are_reached(opened, monkeypatch):
    reached = []
    monkeypatch.setattr(crash_points, "_watchers", [reached.append])
    store = opened()
    store.seal("c-1", "Ann")
    forget(store, "c-1", at_ms=AT_MS, clear=cleared)
    assert reached == list(FORGET_POINTS)


def test_a_changed_receipt_does_not_hold(opened):
    store = opened()
    store.seal("c-1", "Ann")
    path = forget(store, "c-1", at_ms=AT_MS, clear=cleared)
    found = json.loads(path.read_bytes())
    key = public_key(store.signing)
    assert check_receipt(found, key).subject == "c-1"
    for name, value in (("subject", "c-2"), ("left", []), ("forgotten_at", "2020"), ("keys", [])):
        with pytest.raises(CorruptionError):
            check_receipt({**found, name: value}, key)
    with pytest.raises(CorruptionError):
        check_receipt(found, public_key(bytes(32)))
    with pytest.raises(RequestError):
        check_receipt({"subject": "c-1"}, key)


def test_a_subject_that_nothing_is_known_of_is_an_error(opened):
    with pytest.raises(RequestError, match="no key for subject 'c-9'"):
        forget(opened(), "c-9", at_ms=AT_MS, clear=cleared)


def test_forgetting_again_needs_something_to_forget(opened):
    store = opened()
    store.seal("c-1", "Ann")
    forget(store, "c-1", at_ms=AT_MS, clear=cleared)
    with pytest.raises(RequestError, match="forgotten before"):
        forget(store, "c-1", at_ms=AT_MS, clear=cleared)
    store.seal("c-1", "Ann")
    assert forget(store, "c-1", at_ms=AT_MS + 1000, clear=cleared).exists()
