"""Keys of subjects: what they seal only they open, and what is destroyed is in no file."""

import pytest

from headrace.errors import ConfigError, CorruptionError, RetriableError
from headrace.personal import KeyPlace, KeyStore, forget, is_sealed, key_place, open_keys
from headrace.personal.forget import Cleared

MASTER = bytes(range(32))


@pytest.fixture
def store(tmp_path):
    opened = KeyStore(tmp_path / "keys.db", MASTER)
    yield opened
    opened.close()


def reopened(store):
    return KeyStore(store.path, MASTER)


def forgotten(store, subject):
    return forget(store, subject, at_ms=1_700_000_000_000, clear=lambda _: Cleared())


@pytest.mark.parametrize("value", ["Ann", "", 7, 1.5, None, True, ["a", {"b": [1]}], {"street": "Süd 1"}])
def test_what_is_sealed_is_opened_by_whoever_has_the_keys(store, value):
    sealed = store.seal("c-1", value)
    assert is_sealed(sealed)
    assert store.open(sealed) == value == reopened(store).open(sealed)
    assert store.open(sealed, subject="c-1") == value
    assert store.open(sealed, subject="c-2") is None


def test_the_same_value_is_sealed_differently_each_time(store):
    assert store.seal("c-1", "Ann") != store.seal("c-1", "Ann")


def test_a_changed_text_is_damage(store):
    sealed = store.seal("c-1", "Ann")
    middle = len(sealed) - 5
    other = "A" if sealed[middle] != "A" else "B"
    with pytest.raises(CorruptionError):
        store.open(sealed[:middle] + other + sealed[middle + 1 :])
    for text in ("sealed:1:", "sealed:1:AAAA", "sealed:1:***", "Ann"):
        with pytest.raises(CorruptionError):
            store.open(text)


def test_a_forgotten_subject_is_not_read_again_and_the_others_are(store):
    sealed, other = store.seal("c-1", "Ann"), store.seal("c-2", "Bob")
    seen_elsewhere = reopened(store)
    assert seen_elsewhere.open(sealed) == "Ann"  # and its key is remembered there
    forgotten(store, "c-1")
    for each in (store, seen_elsewhere, reopened(store)):
        assert each.open(sealed) is None
        assert each.open(other) == "Bob"
    assert store.open(store.seal("c-1", "Ann again")) == "Ann again"
    assert store.open(sealed) is None


def test_nothing_is_sealed_with_what_was_known_before_a_subject_was_forgotten(store):
    elsewhere = reopened(store)
    store.seal("c-1", "Ann")
    known = store.forgotten()
    forgotten(elsewhere, "c-1")
    with pytest.raises(RetriableError):
        store.seal("c-1", "Ann", known=known)
    elsewhere.seal("c-1", "somebody else")  # a new key does not change that
    with pytest.raises(RetriableError):
        store.seal("c-1", "Ann", known=known)
    assert store.seal("c-2", "Bob", known=known)
    assert store.seal("c-1", "Ann", known=store.forgotten())


def test_sealed_values_inside_others_are_opened(store):
    sealed = store.seal("c-1", "Ann")
    assert store.open_all({"a": [sealed, 1], "b": {"c": sealed}}) == {"a": ["Ann", 1], "b": {"c": "Ann"}}


def test_keys_and_names_are_in_no_file_after_they_were_forgotten(store, tmp_path):
    for each in range(200):
        store.seal(f"customer-{each}", "Ann")
    key = store.key_of("customer-7")
    rows = store._database.execute("SELECT wrapped FROM keys WHERE id = ?", (key.id,)).fetchall()
    assert rows[0][0] in store.path.read_bytes()  # the scan would find it
    forgotten(store, "customer-7")
    for path in tmp_path.rglob("*"):
        if path.is_file() and path.parent.name != "receipts":
            found = path.read_bytes()
            for trace in (rows[0][0], key.key, key.id, b"customer-7"):
                assert trace not in found, (path, trace)


def test_another_master_key_is_refused(store):
    with pytest.raises(ConfigError, match="HEADRACE_MASTER_KEY"):
        KeyStore(store.path, bytes(32))


def test_a_damaged_key_is_found_when_it_is_read(store):
    sealed = store.seal("c-1", "Ann")
    with store.transaction() as database:
        database.execute("UPDATE keys SET wrapped = zeroblob(length(wrapped))")
    with pytest.raises(CorruptionError):
        reopened(store).open(sealed)
    store.close()
    store.path.write_bytes(b"no database at all" * 100)
    with pytest.raises(CorruptionError):
        reopened(store)


def test_keys_are_where_the_environment_says_and_only_their_owner_reads_them(tmp_path):
    place = key_place(tmp_path / "app", {})
    assert place.path == tmp_path / "app" / "personal" / "keys.db"
    sealed = open_keys(place).seal("c-1", "Ann")
    assert open_keys(place).open(sealed) == "Ann"
    for name in ("keys.db", "master.key"):
        assert (place.path.parent / name).stat().st_mode & 0o077 == 0
    moved = key_place(tmp_path, place.environment())
    assert moved == place


def test_the_master_key_is_a_reference_to_32_bytes(tmp_path, monkeypatch):
    monkeypatch.setenv("SHORT", "c2hvcnQ=")
    with pytest.raises(ConfigError, match="openssl rand"):
        open_keys(KeyPlace(tmp_path / "keys.db", "env:SHORT"))
    with pytest.raises(ConfigError, match="env:NAME or file:PATH"):
        open_keys(KeyPlace(tmp_path / "keys.db", "c2hvcnQ="))
    with pytest.raises(ConfigError, match="MISSING"):
        open_keys(KeyPlace(tmp_path / "keys.db", "env:MISSING"))
