"""Users and permissions as bytes, and the file that keeps them."""

import errno
import stat

import pytest

from headrace.broker.access.acls import Acl
from headrace.broker.access.scram import Mechanism, credential_from_password
from headrace.broker.access.state import AccessState, DamagedError, decode, encode
from headrace.broker.access.store import AccessStore
from headrace.errors import CorruptionError, DiskError
from headrace.storage import Disk

SHA256, SHA512 = Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512
ENTRY = Acl(2, 3, "orders", "User:alice", "*", 3, 3)


def some_state():
    state = AccessState(decoy_secret=b"decoy").with_acls(frozenset({ENTRY}))
    for mechanism in Mechanism:
        state = state.with_credential(
            "älice, of =x", credential_from_password(mechanism, "pencil", b"salt", 4096)
        )
    return state


def test_what_is_written_is_read_back():
    assert decode(encode(some_state())) == some_state()


def test_the_password_is_not_in_the_bytes():
    assert b"pencil" not in encode(some_state())


def test_every_flipped_bit_is_noticed_or_means_nothing():
    data = encode(some_state())
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 4
        try:
            found = decode(bytes(changed))
        except DamagedError:
            continue
        assert found == some_state(), position


def test_cut_off_bytes_are_noticed():
    data = encode(some_state())
    for length in range(0, len(data) - 2, 7):
        with pytest.raises(DamagedError):
            decode(data[:length])


def test_a_newer_format_is_refused_by_name():
    with pytest.raises(DamagedError, match="format version 9"):
        decode(encode(some_state()).replace(b'"format_version": 1', b'"format_version": 9'))


def test_a_user_is_gone_with_the_last_credential():
    state = some_state().without_credential("älice, of =x", SHA256)
    assert list(state.users["älice, of =x"]) == [SHA512]
    assert state.without_credential("älice, of =x", SHA512).users == {}


def test_the_file_is_its_owners_only_also_when_it_is_replaced(tmp_path):
    store = AccessStore(tmp_path)
    for _ in range(2):
        store.save(some_state())
        assert stat.S_IMODE(store.path.stat().st_mode) == 0o600
    assert store.load() == some_state()
    assert [path.name for path in tmp_path.iterdir()] == ["access.json"]


def test_a_damaged_file_is_an_error_and_not_an_empty_list(tmp_path):
    store = AccessStore(tmp_path)
    store.save(some_state())
    store.path.write_bytes(store.path.read_bytes().replace(b"orders", b"Orders"))
    with pytest.raises(CorruptionError, match=r"access\.json.*restore the file"):
        store.load()


class FullDisk(Disk):
    def rename(self, source, target):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_when_the_disk_refuses_the_old_state_stays(tmp_path):
    AccessStore(tmp_path).save(some_state())
    with pytest.raises(DiskError, match="No space left"):
        AccessStore(tmp_path, FullDisk()).save(AccessState(decoy_secret=b"other"))
    assert AccessStore(tmp_path).load() == some_state()
