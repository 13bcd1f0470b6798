"""Nobody gets a password who does not know it, and nothing repeats it."""

import base64
import hashlib
import hmac

import pytest

from headrace.capture.postgres.wire.address import PostgresAddress
from headrace.capture.postgres.wire.login import Login
from headrace.capture.postgres.wire.scram import ScramClient, prepared
from headrace.capture.server import SslMode
from headrace.errors import ConfigError, CorruptionError

SECRET = "pencil ü"
SALT = b"salt of the server"


def request(kind: int, rest: bytes = b"") -> bytes:
    return kind.to_bytes(4, "big") + rest


class Server:
    """The other half, which knows what PostgreSQL keeps: two keys and no password."""

    def __init__(self, password: str, rounds: int = 4096) -> None:
        salted = hashlib.pbkdf2_hmac("sha256", password.encode(), SALT, rounds)
        self.stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
        self.server_key = hmac.digest(salted, b"Server Key", "sha256")
        self.rounds = rounds

    def challenge(self, first: bytes) -> bytes:
        self.bare = first.removeprefix(b"n,,")
        nonce = self.bare.split(b"r=")[1] + b"more"
        self.said = b"r=%b,s=%b,i=%d" % (nonce, base64.b64encode(SALT), self.rounds)
        return self.said

    def judge(self, final: bytes) -> bytes:
        unproven, _, proof = final.rpartition(b",p=")
        self.signed = b",".join((self.bare, self.said, unproven))
        signature = hmac.digest(self.stored, self.signed, "sha256")
        key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
        assert hashlib.sha256(key).digest() == self.stored, "the wrong password"
        return b"v=" + base64.b64encode(hmac.digest(self.server_key, self.signed, "sha256"))


def test_both_sides_show_that_they_know_the_password():
    client, server = ScramClient(SECRET, "nonce"), Server(SECRET)
    final = client.final(server.challenge(client.first()))
    client.verify(server.judge(final))
    assert SECRET.encode() not in final


def test_a_server_that_does_not_know_the_password_is_noticed():
    client, server = ScramClient(SECRET, "nonce"), Server(SECRET)
    server.judge(client.final(server.challenge(client.first())))
    server.server_key = b"guessed"
    with pytest.raises(ConfigError, match="does not know the password"):
        client.verify(b"v=" + base64.b64encode(hmac.digest(b"guessed", server.signed, "sha256")))


@pytest.mark.parametrize(
    "challenge",
    [b"", b"r=other,s=AAAA,i=1", b"r=nonce,s=AAAA,i=1", b"r=noncex,s=?,i=1", b"r=noncex,s=AAAA,i=x",
     b"r=noncex,s=AAAA,i=0", b"r=noncex,s=AAAA,i=2000000000", b"\xff"],
)  # fmt: skip
def test_a_challenge_that_is_none_is_refused(challenge):
    with pytest.raises(CorruptionError):
        ScramClient(SECRET, "nonce").final(challenge)


def test_a_login_may_not_be_ended_before_the_server_has_shown_that_it_knows_the_password():
    login = Login("ann", SECRET, encrypted=True)
    login.answer(request(10, b"SCRAM-SHA-256\0\0"))
    with pytest.raises(CorruptionError, match="without showing"):
        login.answer(request(0))


def test_a_password_is_sent_in_clear_within_tls_only():
    with pytest.raises(ConfigError, match="without TLS") as refused:
        Login("ann", SECRET, encrypted=False).answer(request(3))
    assert SECRET not in str(refused.value)
    assert SECRET.encode() in (Login("ann", SECRET, encrypted=True).answer(request(3)) or b"")


def test_md5_is_answered_as_the_server_stores_it():
    answer = Login("ann", SECRET, encrypted=False).answer(request(5, b"salt"))
    inner = hashlib.md5((SECRET + "ann").encode()).hexdigest()
    assert answer is not None
    assert answer[5:-1] == b"md5" + hashlib.md5(inner.encode() + b"salt").hexdigest().encode()


def test_a_missing_password_and_an_unknown_way_are_explained():
    with pytest.raises(ConfigError, match="password=env:NAME"):
        Login("ann", "", encrypted=True).answer(request(10, b"SCRAM-SHA-256\0\0"))
    with pytest.raises(ConfigError, match="scram-sha-256"):
        Login("ann", SECRET, encrypted=True).answer(request(7))


def test_passwords_are_prepared_as_the_server_prepares_them():
    assert prepared("\u2168") == b"IX"
    assert prepared("I\u00adX") == b"IX"
    assert prepared("a\u0007b") == b"a\x07b"


def test_a_url_says_where_the_password_is_and_never_holds_it():
    address = PostgresAddress.parse(
        "postgresql://ann@db.example:6432/shop?password=env:SHOP_PASSWORD&sslmode=verify-full&sslrootcert=/ca.pem"
    )
    assert (address.host, address.port, address.user, address.database) == ("db.example", 6432, "ann", "shop")
    assert (address.password, address.sslmode) == ("env:SHOP_PASSWORD", SslMode.VERIFY_FULL)
    assert PostgresAddress.parse("postgresql://ann@/?host=/run/postgresql").socket_path == (
        "/run/postgresql/.s.PGSQL.5432"
    )


def test_a_password_comes_from_where_the_reference_leads(tmp_path, monkeypatch):
    monkeypatch.setenv("SHOP_PASSWORD", SECRET)
    (tmp_path / "secret").write_text(SECRET + "\n")
    for reference in ("env:SHOP_PASSWORD", f"file:{tmp_path}/secret"):
        assert (
            PostgresAddress.parse(f"postgresql://ann@db/x?password={reference}").resolve_password() == SECRET
        )
    assert PostgresAddress.parse("postgresql://ann@db/x").resolve_password() == ""
    for reference, said in (("env:NOT_SET", "NOT_SET is not set"), (f"file:{tmp_path}/none", "is missing")):
        with pytest.raises(ConfigError, match=said):
            PostgresAddress.parse(f"postgresql://ann@db/x?password={reference}").resolve_password()


@pytest.mark.parametrize(
    "url",
    ["postgresql://ann:hunter2@db/shop", "postgresql://ann@db/shop?password=hunter2",
     "postgresql://ann@db/shop?sslmode=hunter2x", "postgresql://ann@db:99999/hunter2",
     "postgresql://db/hunter2?nonsense=1", "mysql://hunter2"],
)  # fmt: skip
def test_a_url_that_does_not_fit_is_refused_without_being_repeated(url):
    with pytest.raises(ConfigError) as refused:
        PostgresAddress.parse(url)
    assert "hunter2" not in str(refused.value).replace("hunter2x", "")
