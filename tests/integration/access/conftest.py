"""Certificates, users, and a broker that wants to know who is there."""

import shutil
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from headrace.broker.access import offline
from headrace.testing.broker import BrokerProcess

ADMIN_PASSWORD = "planted-admin-password-7fK2"
PASSWORDS = {
    "admin": ADMIN_PASSWORD,
    "alice": "planted-alice-password-9xQ4",
    "bob": "planted-bob,password=3zL8",
}


class Pki:
    """A certificate authority of one test run, made with the `openssl` command."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ca = path / "ca.pem"
        self._run("req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=headrace tests",
                  *self._new_key("ca.key"), "-out", str(self.ca))  # fmt: skip

    def issue(self, name: str, subject: str) -> tuple[Path, Path]:
        """A certificate for this machine and its key."""
        certificate, key = self.path / f"{name}.pem", self.path / f"{name}.key"
        request, extension = self.path / f"{name}.csr", self.path / f"{name}.ext"
        extension.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        self._run("req", "-nodes", "-subj", subject, *self._new_key(key.name), "-out", str(request))
        self._run("x509", "-req", "-days", "2", "-in", str(request), "-CA", str(self.ca),
                  "-CAkey", str(self.path / "ca.key"), "-CAcreateserial", "-extfile", str(extension),
                  "-out", str(certificate))  # fmt: skip
        return certificate, key

    def _new_key(self, name: str) -> list[str]:
        return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-keyout", str(self.path / name)]

    def _run(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True)


@dataclass
class Secured:
    """A running broker and how to reach it as somebody."""

    process: BrokerProcess
    pki: Pki

    @property
    def bootstrap(self) -> str:
        return self.process.bootstrap

    def as_user(self, user, password=None, mechanism="SCRAM-SHA-512", **properties):
        """librdkafka's properties of a user's client."""
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": PASSWORDS[user] if password is None else password,
            "ssl.ca.location": str(self.pki.ca),
            "log_level": 0,
            "reconnect.backoff.max.ms": 200,
            **properties,
        }

    @cached_property
    def admin(self):
        """One client for all: the library cancels what a discarded one was asked."""
        return AdminClient(self.as_user("admin"))

    def create(self, topic, partitions=1):
        self.admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)

    def allow(self, user, operation, kind, name, *, prefixed=False, deny=False, remove=False):
        """Adds (or removes) an entry and returns when it counts."""
        pattern = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
        says = AclPermissionType.DENY if deny else AclPermissionType.ALLOW
        entry = AclBinding(
            ResourceType[kind], name, pattern, f"User:{user}", "*", AclOperation[operation], says
        )
        if remove:
            wanted = AclBindingFilter(
                ResourceType[kind], name, pattern, f"User:{user}", "*", AclOperation[operation], says
            )
            assert len(self.admin.delete_acls([wanted])[wanted].result(30)) == 1
        else:
            self.admin.create_acls([entry])[entry].result(30)


@pytest.fixture(scope="session")
def pki(tmp_path_factory):
    if shutil.which("openssl") is None:
        pytest.skip("makes its certificates with the `openssl` command, which is not installed")
    return Pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="session")
def server_files(pki):
    return pki.issue("server", "/CN=localhost")


@pytest.fixture
def secured_settings(pki, server_files):
    certificate, key = server_files
    return {
        "authenticate": True,
        "super_users": "admin",
        "tls_certificate": certificate,
        "tls_key": key,
        "tls_client_ca": pki.ca,
    }


@pytest.fixture(scope="session")
def secured(tmp_path_factory, pki, server_files):
    """One broker for all tests that do not restart it; tests use topics and users of their own."""
    certificate, key = server_files
    data = tmp_path_factory.mktemp("secured") / "data"
    for user, password in PASSWORDS.items():
        offline.add_user(data, user, password)
    broker = BrokerProcess(
        data,
        authenticate=True,
        super_users="admin",
        tls_certificate=certificate,
        tls_key=key,
        tls_client_ca=pki.ca,
    )
    with broker:
        yield Secured(broker, pki)


@pytest.fixture
def topic(secured, request):
    """A new topic that nobody but the administrator may touch."""
    name = "t-" + "".join(each if each.isalnum() else "-" for each in request.node.name)[:200]
    secured.create(name)
    return name
