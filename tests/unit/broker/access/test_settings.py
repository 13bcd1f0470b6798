"""What the broker refuses to start with."""

import pytest

from headrace.broker import BrokerSettings
from headrace.broker.access.tls import principal_of, server_context
from headrace.errors import ConfigError


@pytest.mark.parametrize("listen", ["0.0.0.0:9092", "[::]:9092", "192.168.1.5:9092", "myhost:9092"])
def test_listening_beyond_loopback_without_authentication_is_refused(listen):
    with pytest.raises(ConfigError, match=r"listen=.*--authenticate.*--allow-unauthenticated"):
        BrokerSettings(listen=listen)
    BrokerSettings(listen=listen, authenticate=True)
    BrokerSettings(listen=listen, allow_unauthenticated=True)


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "127.8.8.8:0", "[::1]:0", "localhost:9092"])
def test_loopback_needs_no_authentication(listen):
    BrokerSettings(listen=listen)


@pytest.mark.parametrize(
    "wrong",
    [
        {"tls_certificate": "server.pem"},
        {"tls_key": "server.key"},
        {"tls_client_ca": "ca.pem", "authenticate": True},
        {"tls_client_ca": "ca.pem", "tls_certificate": "a", "tls_key": "b"},
    ],
)
def test_half_of_tls_is_refused(wrong):
    with pytest.raises(ConfigError, match="tls_"):
        BrokerSettings(**wrong)


def test_super_users_are_separated_by_semicolons():
    chosen = BrokerSettings(super_users="admin; User:root;CN=ops,O=Example;")
    assert chosen.super_principals() == {"User:admin", "User:root", "User:CN=ops,O=Example"}


def test_files_that_cannot_be_used_are_named_and_not_shown(tmp_path):
    certificate, key = tmp_path / "server.pem", tmp_path / "server.key"
    with pytest.raises(ConfigError, match=r"tls_certificate and tls_key.*server\.pem.*No such file"):
        server_context(str(certificate), str(key))
    certificate.write_text("nonsense")
    key.write_text("-----BEGIN PRIVATE KEY-----\nMIIplanted\n-----END PRIVATE KEY-----\n")
    with pytest.raises(ConfigError) as refused:
        server_context(str(certificate), str(key))
    assert "MIIplanted" not in str(refused.value)


def test_a_certificates_subject_becomes_the_principal_most_specific_part_first():
    subject = (
        (("countryName", "DE"),),
        (("organizationName", "Example, Inc"),),
        (("commonName", "alice"),),
    )
    assert principal_of({"subject": subject}) == r"User:CN=alice,O=Example\, Inc,C=DE"
