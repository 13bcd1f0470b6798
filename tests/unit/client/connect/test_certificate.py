"""A client certificate and its key: what becomes of them for each library, and what is refused before."""

import shutil
import subprocess

import pytest

from headrace.cli.passwords import complete_identity
from headrace.client import Identity
from headrace.config import load
from headrace.errors import ConfigError
from headrace.streams.source.options import read_options

PLANTED = "-----BEGIN PRIVATE KEY-----\nMIIplanted5e1\n-----END PRIVATE KEY-----\n"


def new_pair(path, name, *more):
    """A certificate that vouches for itself, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("makes its certificates with the `openssl` command, which is not installed")
    pair = path / f"{name}.pem", path / f"{name}.key"
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", *(more or ["-nodes"])]
    command = ["openssl", "req", "-x509", *new_key, "-keyout", str(pair[1]), "-subj", f"/CN={name}"]
    subprocess.run([*command, "-out", str(pair[0])], check=True, capture_output=True)
    return tuple(map(str, pair))


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return new_pair(tmp_path_factory.mktemp("carol"), "carol")


@pytest.fixture
def carol(pair):
    certificate, key = pair
    return {"tls_ca": "system", "client_certificate": certificate, "client_key": key}


def test_a_certificate_alone_is_who_the_client_is(carol, pair):
    assert Identity(**carol).client_properties() == {
        "security.protocol": "SSL",
        "ssl.certificate.location": pair[0],
        "ssl.key.location": pair[1],
    }


def test_a_certificate_may_come_with_a_user(carol, monkeypatch):
    monkeypatch.setenv("HEADRACE_PASSWORD", "from-the-environment")
    both = Identity(user="app", **carol)
    properties = both.client_properties()
    assert properties["security.protocol"] == "SASL_SSL"
    assert properties["sasl.username"] == "app"
    assert properties["ssl.certificate.location"] == carol["client_certificate"]
    assert both.security().user == "app"


def test_a_process_and_a_spark_source_become_the_same(carol):
    given = Identity(**carol)
    assert load(Identity, environment=given.environment()) == given
    assert (
        read_options({"topic": "orders", **carol}).connection().identity_fields() == given.identity_fields()
    )


def test_the_variables_are_no_settings_of_a_broker(carol):
    """An embedded log is started with the same environment."""
    from headrace.broker import BrokerSettings

    assert load(BrokerSettings, environment=Identity(**carol).environment()) == BrokerSettings()


def test_a_command_passes_on_whole_paths(carol, pair, monkeypatch, tmp_path):
    for path in pair:
        shutil.copy(path, tmp_path)
    monkeypatch.chdir(tmp_path)
    found = complete_identity(
        Identity(tls_ca="system", client_certificate="carol.pem", client_key="carol.key")
    )
    assert found.client_certificate == str(tmp_path / "carol.pem")
    assert found.client_key == str(tmp_path / "carol.key")


@pytest.mark.parametrize(
    ("left_out", "reason"),
    [
        ("client_key", "client_key is missing.*both"),
        ("client_certificate", "client_certificate is missing.*both"),
        ("tls_ca", "client_certificate needs TLS: .*tls_ca"),
    ],
)
def test_a_part_alone_is_refused(carol, left_out, reason):
    with pytest.raises(ConfigError, match=reason):
        Identity(**{**carol, left_out: ""}).client_properties()


@pytest.mark.parametrize("name", ["client_certificate", "client_key"])
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, r"cannot be read: No such file"),
        ("directory", r"cannot be read: Is a directory"),
        (b"\xff\x00nonsense", r"is not a PEM file"),
        ("planted-nonsense-5e1", r"is not a PEM file"),
        (PLANTED.replace("PRIVATE KEY", "CERTIFICATE REQUEST"), r"is not a PEM file"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_and_not_shown(carol, tmp_path, name, content, reason):
    path = tmp_path / "given.pem"
    if content == "directory":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ConfigError, match=rf"{name} \({path}\) {reason}") as refused:
        Identity(**{**carol, name: str(path)}).client_properties()
    assert "5e1" not in str(refused.value)


def test_a_key_that_is_damaged_encrypted_or_anothers_is_told(carol, pair, tmp_path):
    damaged = tmp_path / "damaged.key"
    damaged.write_text(PLANTED)
    _, encrypted = new_pair(tmp_path, "encrypted", "-passout", "pass:planted-5e1")
    _, anothers = new_pair(tmp_path, "another")
    told = {damaged: "cannot be used", encrypted: "has a password", anothers: "do not belong together"}
    for key, reason in told.items():
        with pytest.raises(ConfigError, match=reason) as refused:
            Identity(**{**carol, "client_key": str(key)}).client_properties()
        assert str(key) in str(refused.value)
        assert "5e1" not in str(refused.value) and "planted5e1" not in str(refused.value)
