"""Encrypted, and logged in by each way that a server may ask for."""

import shutil
import subprocess

import pytest
from tests.integration.capture.postgres.conftest import started

from headrace.capture.postgres import PostgresAddress
from headrace.capture.postgres.wire.connection import Connection
from headrace.errors import ConfigError
from headrace.testing.postgres_process import PASSWORD, find_versions

pytestmark = pytest.mark.xdist_group("postgres")

RULES = b"""
hostssl all clear 127.0.0.1/32 password
hostnossl all clear 127.0.0.1/32 password
host all old 127.0.0.1/32 md5
host all open 127.0.0.1/32 trust
host all all 127.0.0.1/32 scram-sha-256
"""
ENCRYPTED = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    """A server with a certificate for 127.0.0.1, and the folder of that certificate."""
    if shutil.which("openssl") is None:
        pytest.skip("the openssl command makes the certificate, and is not here")
    folder = tmp_path_factory.mktemp("tls")
    command = ["openssl", "req", "-x509", "-nodes", "-days", "2", "-newkey", "ec", "-pkeyopt",
               "ec_paramgen_curve:P-256", "-subj", "/CN=db", "-addext", "subjectAltName=IP:127.0.0.1",
               "-keyout", str(folder / "server.key"), "-out", str(folder / "server.crt")]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    files = {name: (folder / name).read_bytes() for name in ("server.key", "server.crt")}
    with started(_of_the_system(), {**files, "pg_hba.conf": RULES}, ssl="on") as server:
        with Connection(PostgresAddress.parse(server.url()), PASSWORD) as admin:
            for statement in (
                f"CREATE ROLE clear LOGIN PASSWORD '{PASSWORD}'",
                "SET password_encryption = 'md5'",
                f"CREATE ROLE old LOGIN PASSWORD '{PASSWORD}'",
                "CREATE ROLE open LOGIN",
            ):
                admin.query(statement)
        yield server, folder / "server.crt"


def _of_the_system() -> int:
    """A server that was built with TLS, which those of the wheel need not be."""
    versions = [each for each, folder in find_versions().items() if folder.is_relative_to("/usr")]
    if not versions:
        pytest.skip("no server program of the system here; apt-get install postgresql")
    return versions[0]


def said(server, user: str = "postgres", password: str = PASSWORD, **options: str) -> str:
    url = server.url(**options).replace("postgres@", f"{user}@")
    with Connection(PostgresAddress.parse(url), password) as connection:
        return connection.value(ENCRYPTED)


def test_a_connection_is_encrypted_as_far_as_it_is_asked_for(secured):
    server, certificate = secured
    assert said(server, sslmode="disable") == "f"
    assert said(server) == said(server, sslmode="require") == "t"
    assert said(server, sslmode="verify-full", sslrootcert=str(certificate)) == "t"


def test_a_certificate_that_nobody_vouches_for_or_for_another_name_is_refused(secured):
    server, certificate = secured
    with pytest.raises(ConfigError, match="is not accepted"):
        said(server, sslmode="verify-full")
    url = server.url(sslmode="verify-full", sslrootcert=str(certificate)).replace("127.0.0.1", "localhost")
    with pytest.raises(ConfigError, match="is not accepted"):
        Connection(PostgresAddress.parse(url), PASSWORD)
    with pytest.raises(ConfigError, match="cannot be read"):
        said(server, sslmode="verify-full", sslrootcert="/nowhere.crt")


def test_each_way_of_logging_in_is_answered(secured):
    server, _ = secured
    assert said(server, "old", sslmode="disable") == "f"
    assert said(server, "open", "", sslmode="disable") == "f"
    assert said(server, "clear", sslmode="require") == "t"


def test_a_password_in_clear_is_not_sent_without_tls(secured):
    with pytest.raises(ConfigError, match="without TLS"):
        said(secured[0], "clear", sslmode="disable")


def test_changes_come_through_tls(secured):
    server, _ = secured
    address = PostgresAddress.parse(server.url(sslmode="require"))
    with Connection(address, PASSWORD) as queries:
        queries.query("CREATE TABLE t (id int PRIMARY KEY, v text)")
        queries.query("CREATE PUBLICATION p FOR TABLE t")
        queries.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")
        queries.query("INSERT INTO t SELECT g, repeat('x', 100000) FROM generate_series(1, 50) g")
        with Connection(address, PASSWORD, replication=True) as stream:
            stream.start_replication(
                "START_REPLICATION SLOT s LOGICAL 0/0 (proto_version '1', publication_names 'p')"
            )
            rows = 0
            while rows < 50:
                body = stream.stream(10.0)
                assert body is not None, "the stream stopped"
                rows += body[25:26] == b"I"
