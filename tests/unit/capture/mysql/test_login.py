"""Logging in as MySQL's plugins want it, and the password never in clear."""

import base64
import hashlib
import secrets

import pytest

from headrace.capture.mysql.wire.login import Login, native_answer, sha2_answer
from headrace.capture.mysql.wire.protocol import Packets, packets, read_greeting
from headrace.capture.mysql.wire.rsa import encrypt, read_public_key
from headrace.errors import ConfigError, CorruptionError

SCRAMBLE = bytes(range(1, 21))
PRIMES = (2**521 - 1, 2**607 - 1)
EXPONENT = 65537


def sha1(data: bytes) -> bytes:
    return hashlib.sha1(data).digest()


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def pem() -> bytes:
    """A public key, with the name of its algorithm before it, as `openssl` writes it."""

    def element(tag: int, contents: bytes) -> bytes:
        return bytes([tag, 0x82]) + len(contents).to_bytes(2, "big") + contents

    modulus = PRIMES[0] * PRIMES[1]
    numbers = [number.to_bytes(number.bit_length() // 8 + 1, "big") for number in (modulus, EXPONENT)]
    key = element(0x30, b"".join(element(2, each) for each in numbers))
    whole = element(0x30, element(0x30, b"\x06\x01\x00") + element(3, b"\0" + key))
    return b"-----BEGIN PUBLIC KEY-----\n" + base64.encodebytes(whole) + b"-----END PUBLIC KEY-----\n"


def decrypted(data: bytes) -> bytes:
    """What the owner of the key reads: PKCS #1 OAEP, the other way round."""
    modulus = PRIMES[0] * PRIMES[1]
    private = pow(EXPONENT, -1, (PRIMES[0] - 1) * (PRIMES[1] - 1))
    size = (modulus.bit_length() + 7) // 8
    whole = pow(int.from_bytes(data, "big"), private, modulus).to_bytes(size, "big")
    seed_part, block_part = whole[1:21], whole[21:]

    def mask(seed: bytes, length: int) -> bytes:
        made = b"".join(sha1(seed + counter.to_bytes(4, "big")) for counter in range(length // 20 + 1))
        return made[:length]

    seed = xor(seed_part, mask(block_part, 20))
    block = xor(block_part, mask(seed, len(block_part)))
    assert block.startswith(sha1(b""))
    return block[20:].lstrip(b"\0")[1:]


def test_a_server_that_knows_the_password_accepts_both_answers():
    """As the server checks them: from what it has stored, which is not the password."""
    stored = sha1(sha1(b"pencil"))
    once = xor(native_answer("pencil", SCRAMBLE), sha1(SCRAMBLE + stored))
    assert sha1(once) == stored
    stored = sha256(sha256(b"pencil"))
    once = xor(sha2_answer("pencil", SCRAMBLE), sha256(stored + SCRAMBLE))
    assert sha256(once) == stored


def test_a_password_for_a_public_key_is_read_by_its_owner_alone():
    sent = encrypt(b"pencil\0", read_public_key(pem()), secrets.token_bytes)
    assert decrypted(sent) == b"pencil\0" and b"pencil" not in sent


def test_without_tls_the_password_itself_goes_out_for_the_servers_key_only():
    login = Login("ann", "pencil", is_private=False)
    assert login.begin("caching_sha2_password", SCRAMBLE) == sha2_answer("pencil", SCRAMBLE)
    assert login.answer(b"\x01\x04") == b"\x02"
    sent = login.answer(b"\x01" + pem())
    assert xor(decrypted(sent or b""), SCRAMBLE[:7]) == b"pencil\0"
    assert login.answer(b"\0\0\0\2\0\0\0") is None and login.is_done


def test_within_tls_the_server_gets_the_password_if_it_has_forgotten_it():
    login = Login("ann", "pencil", is_private=True)
    login.begin("caching_sha2_password", SCRAMBLE)
    assert login.answer(b"\x01\x03") is None and not login.is_done
    assert login.answer(b"\x01\x04") == b"pencil\0"


def test_another_plugin_is_switched_to():
    login = Login("ann", "pencil", is_private=False)
    login.begin("caching_sha2_password", SCRAMBLE)
    other = bytes(range(21, 41))
    assert login.answer(b"\xfemysql_native_password\0" + other + b"\0") == native_answer("pencil", other)


@pytest.mark.parametrize("plugin", ["mysql_clear_password", "client_ed25519", "auth_gssapi_client"])
def test_what_cannot_be_answered_says_what_to_do(plugin):
    login = Login("ann", "pencil", is_private=False)
    login.begin("mysql_native_password", SCRAMBLE)
    with pytest.raises(ConfigError, match="caching_sha2_password") as refused:
        login.answer(b"\xfe" + plugin.encode() + b"\0" + SCRAMBLE + b"\0")
    assert "pencil" not in str(refused.value)


@pytest.mark.parametrize("key", [b"", b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END", b"MIIB", b"\xff\n" * 9])
def test_what_is_no_key_is_refused(key):
    with pytest.raises(CorruptionError, match="public key"):
        read_public_key(key)


def test_a_greeting_tells_the_product_and_its_release():
    def greeted(version: bytes) -> bytes:
        head = b"\x0a" + version + b"\0" + b"\1\0\0\0" + SCRAMBLE[:8] + b"\0" + b"\xff\xf7" + b"\x2d\2\0"
        return head + b"\xff\x81\x15" + b"\0" * 10 + SCRAMBLE[8:] + b"\0" + b"caching_sha2_password\0"

    mysql = read_greeting(greeted(b"8.4.3"))
    assert (mysql.release, mysql.is_mariadb, mysql.scramble) == ((8, 4, 3), False, SCRAMBLE)
    mariadb = read_greeting(greeted(b"5.5.5-10.11.6-MariaDB-0+deb12u1-log"))
    assert (mariadb.release, mariadb.is_mariadb) == ((10, 11, 6), True)


@pytest.mark.parametrize("size", [0, 1, 2**24 - 2, 2**24 - 1, 2**24, 2**25 - 1])
def test_a_body_of_any_size_is_cut_into_packets_and_put_together(size):
    body = bytes(size)
    sent, read = packets(body, 3), Packets()
    for begin in range(0, len(sent), 7 << 20):
        read.feed(sent[begin : begin + (7 << 20)])
    assert read.next() == body and read.next() is None
    assert read.sequence == 3 + size // (2**24 - 1)
