"""Who a client is: what becomes of it for each library, and where the password is not."""

import pickle

import pytest

from headrace.client import Connection, Identity
from headrace.config import load
from headrace.errors import ConfigError
from headrace.streams.source.options import read_options

SECRET = "planted-pw-5e1"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "password"
    path.write_text(f"{SECRET}\nanother line\n")
    return str(path)


def test_nobody_logs_in_in_the_open_by_default():
    assert Identity().client_properties() == {}
    assert Identity().security() is None


def test_a_user_with_and_without_tls(file, tmp_path):
    open_ = Identity(user="app", password_file=file).client_properties()
    assert open_ == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "app",
        "sasl.password": SECRET,
    }
    closed = Identity(user="app", password_file=file, tls_ca="system", sasl_mechanism="plain")
    assert closed.client_properties() == {**open_, "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
    security = closed.security()
    assert (security.user, security.mechanism, security.password) == ("app", "PLAIN", SECRET)
    assert security.tls is not None
    assert Identity(tls_ca=file).client_properties() == {"security.protocol": "SSL", "ssl.ca.location": file}


def test_the_password_comes_from_the_file_or_the_environment_when_it_is_needed(file, monkeypatch):
    connection = Connection(user="app")
    monkeypatch.setenv("HEADRACE_PASSWORD", "from-the-environment")
    assert connection.client_properties()["sasl.password"] == "from-the-environment"
    assert Connection(user="app", password_file=file).client_properties()["sasl.password"] == SECRET
    monkeypatch.delenv("HEADRACE_PASSWORD")
    with pytest.raises(ConfigError, match="HEADRACE_PASSWORD"):
        connection.client_properties()


def test_what_is_written_down_or_sent_to_a_worker_has_no_password(file, monkeypatch):
    monkeypatch.setenv("HEADRACE_PASSWORD", SECRET)
    connection = Connection(user="app", password_file=file, tls_ca="system")
    assert SECRET not in repr(connection)
    assert SECRET.encode() not in pickle.dumps(connection)
    assert pickle.loads(pickle.dumps(connection)) == connection
    assert SECRET not in repr(connection.security())
    assert SECRET not in str(connection.environment())


def test_a_process_becomes_the_same_by_its_environment(file):
    given = Identity(user="app", password_file=file, tls_ca="system", sasl_mechanism="PLAIN")
    assert load(Identity, environment=given.environment()) == given
    assert load(Identity, environment={**given.environment(), **Identity().environment()}) == Identity()


def test_options_of_the_spark_source_are_the_same(file):
    options = read_options({"topic": "orders", "user": "app", "password_file": file, "tls_ca": "system"})
    assert (
        options.connection().identity_fields()
        == Identity(user="app", password_file=file, tls_ca="system").identity_fields()
    )
    with pytest.raises(ConfigError, match="no option 'password'"):
        read_options({"topic": "orders", "password": SECRET})


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"tls_ca": "/nowhere/ca.pem"}, "no file /nowhere/ca.pem"),
        ({"user": "app", "password_file": "/nowhere/pw"}, "cannot be read: No such file"),
        ({"user": "app", "password_file": "/dev/null"}, "is empty"),
        ({"user": "app", "sasl_mechanism": "GSSAPI"}, "SCRAM-SHA-512, SCRAM-SHA-256, PLAIN"),
    ],
)
def test_what_is_missing_is_named(given, reason):
    with pytest.raises(ConfigError, match=reason):
        Identity(**given).client_properties()


def test_a_password_by_reference_is_read_where_a_connection_is_made(tmp_path, monkeypatch):
    by_name = Connection(user="app", password_file="env:KAFKA_PASSWORD")
    sent = pickle.dumps(by_name)
    monkeypatch.setenv("KAFKA_PASSWORD", SECRET)
    assert pickle.loads(sent).client_properties()["sasl.password"] == SECRET
    assert SECRET not in repr(by_name) and SECRET.encode() not in sent
    (tmp_path / "secret").write_text(SECRET + "\n")
    by_file = Identity(user="app", password_file=f"file:{tmp_path / 'secret'}")
    assert by_file.client_properties()["sasl.password"] == SECRET
    monkeypatch.delenv("KAFKA_PASSWORD")
    with pytest.raises(ConfigError, match="the password of app is env:KAFKA_PASSWORD, but"):
        by_name.client_properties()
