"""Captures by Debezium as they are declared, and what its connectors are told."""

import pytest

from headrace.capture import CaptureSpec, open_source, own_topics, parse_spec
from headrace.capture.connect import DATABASES, DebeziumAddress
from headrace.capture.connect.connector import Secrets, connector_config
from headrace.capture.connect.run import cause_of
from headrace.capture.connect.settings import log_properties
from headrace.capture.connect.tables import spark_type
from headrace.client import Connection
from headrace.errors import ConfigError, RequestError

PLANTED = "planted secret"


def url(kind: str, rest: str = "") -> str:
    return f"debezium+{kind}://sa@db.example/shop?password=env:SHOP_PASSWORD{rest}"


@pytest.fixture(autouse=True)
def _password(monkeypatch):
    monkeypatch.setenv("SHOP_PASSWORD", PLANTED)


def config(spec: CaptureSpec, log: dict[str, str] | None = None) -> tuple[dict[str, str], Secrets]:
    secrets = Secrets()
    address = DebeziumAddress.parse(spec.url)
    return connector_config(spec, address, log or {}, secrets, bootstrap_servers="log:9092"), secrets


@pytest.mark.parametrize("kind", DATABASES)
def test_no_secret_is_in_what_is_stored_or_shown(kind):
    secret = {"database.ssl.truststore.password": "env:SHOP_PASSWORD"} if kind == "mysql" else {}
    spec = CaptureSpec(name="shop", url=url(kind), tables=("customers",), settings=secret)
    assert parse_spec(spec.to_json()) == spec
    made, secrets = config(spec)
    assert PLANTED not in f"{spec} {spec.to_json()} {made} {secrets}"
    assert set(secrets.values.values()) == {PLANTED}
    names = {key for key, value in made.items() if value.startswith("${env:HEADRACE_CONNECT_SECRET_")}
    assert names == {"mongodb.password" if kind == "mongodb" else "database.password", *secret}
    assert secrets.hidden(f"refused {PLANTED}!") == "refused ********!"


@pytest.mark.parametrize(
    ("kind", "listed"),
    [
        ("sqlserver", {"table.include.list": r"dbo\.customers", "database.names": "shop"}),
        ("oracle", {"table.include.list": r"SA\.customers", "database.dbname": "shop"}),
        ("db2", {"table.include.list": r"SA\.customers", "database.dbname": "shop"}),
        ("mongodb", {"collection.include.list": r"shop\.customers", "database.include.list": "shop"}),
        ("postgresql", {"table.include.list": r"public\.customers", "slot.name": "headrace_shop_2"}),
        ("mysql", {"table.include.list": r"shop\.customers", "database.include.list": "shop"}),
        ("mariadb", {"table.include.list": r"shop\.customers", "database.include.list": "shop"}),
    ],
)
def test_a_connector_reads_the_named_tables_only(kind, listed):
    made, _ = config(CaptureSpec(name="shop-2", url=url(kind), tables=("customers",)))
    assert made.items() >= listed.items()
    assert made["topic.prefix"] == "shop-2"
    assert made.get("exactly.once.support") == (None if kind == "db2" else "required")
    assert ("schema.history.internal.kafka.topic" in made) == DATABASES[kind].has_history


def test_a_topic_of_sql_server_is_named_without_its_database():
    made, _ = config(CaptureSpec(name="shop", url=url("sqlserver").replace("/shop?", "/my%20shop?")))
    assert made["transforms.route.regex"] == r"shop\.my_shop\.(.*)"
    assert made["transforms.route.replacement"] == "shop.$1"
    assert made["database.names"] == "my shop"


def test_a_replica_set_of_mongodb_is_named_whole():
    given = "debezium+mongodb://app@a:1,b/shop?password=env:SHOP_PASSWORD&replicaSet=rs0&tls=true"
    address = DebeziumAddress.parse(given)
    assert address.connection_string == "mongodb://a:1,b:27017/?replicaSet=rs0&tls=true"
    assert address.shown == "debezium+mongodb://app@a:1,b:27017/shop"
    srv = DebeziumAddress.parse("debezium+mongodb+srv://app@cluster.example/shop?password=env:SHOP_PASSWORD")
    assert srv.connection_string == "mongodb+srv://cluster.example/"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"url": "debezium+sybase://sa@db/shop"}, "no database that Debezium reads"),
        (
            {"url": f"debezium+oracle://sa:{PLANTED.split()[0]}@db/shop"},
            "a password does not belong in a URL",
        ),
        ({"url": f"debezium+oracle://sa@db/shop?password={PLANTED.split()[0]}"}, "not what it is"),
        ({"url": "debezium+oracle://sa@db/shop"}, "says where the password is"),
        ({"url": "debezium+oracle://sa@db/?password=env:X"}, "names no database"),
        ({"url": "debezium+oracle://a,b/shop"}, "names its host"),
        ({"url": "debezium+oracle://sa@db/shop?password=env:X&lob.enabled=true"}, "settings="),
        ({"url": "debezium+mongodb://db/shop?replicaSet=a;b"}, "letters, digits"),
        ({"settings": {"transforms": "x"}}, "not a setting of Debezium's connector for SQL Server"),
        ({"settings": {"converters": "x"}}, "not a setting"),
        ({"settings": {"topic.prefix": "x"}}, "not a setting"),
        ({"settings": {"column.mask.with.x.chars": "y"}}, "not a setting"),
        ({"settings": {"database.trustStorePassword": PLANTED}}, "says where the secret is"),
        ({"settings": {"snapshot.mode": "${file:/etc/passwd:x}"}}, "would be replaced"),
        ({"outbox": ("outbox",)}, "outbox"),
        ({"url": "sqlite:///shop.db", "settings": {"snapshot.mode": "no_data"}}, "debezium\\+… URLs only"),
    ],
)
def test_what_does_not_fit_is_named_and_no_secret_is_repeated(fields, reason):
    with pytest.raises(ConfigError, match=reason) as raised:
        CaptureSpec(**{"name": "shop", "url": url("sqlserver"), **fields})
    assert "planted" not in str(raised.value)


def test_settings_of_columns_and_of_the_connector_are_passed_on():
    settings = {"snapshot.mode": "no_data", "column.mask.with.12.chars": "dbo.customers.email"}
    made, _ = config(CaptureSpec(name="shop", url=url("sqlserver"), settings=settings))
    assert made.items() >= settings.items()


def test_a_capture_by_debezium_has_its_own_topics_and_no_reader_of_ours():
    spec = CaptureSpec(name="shop", url=url("oracle"))
    assert set(own_topics(spec)) >= {"shop.state", "shop.connect-offsets", "shop.schema-history"}
    with pytest.raises(RequestError, match="Debezium"):
        open_source(spec)


def test_the_log_is_reached_as_our_own_clients_reach_it(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADRACE_PASSWORD", 'a "quoted" \\ one')
    authority = tmp_path / "ca.pem"
    authority.write_text("")
    made = log_properties(Connection(user="ann", tls_ca=str(authority)))
    assert made == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="ann" password="a \\"quoted\\" \\\\ one";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority),
    }
    assert log_properties(Connection()) == {}


def test_the_innermost_cause_of_a_trace_is_said():
    trace = "org.x.ConnectException: outer\n\tat a.b(C.java)\nCaused by: java.net.SocketException: refused\n"
    assert cause_of(trace) == "refused"
    assert cause_of("plain") == "plain"
    assert cause_of("") == "it gave no reason"


@pytest.mark.parametrize(
    ("kind", "name", "code", "digits", "scale", "expected"),
    [
        ("sqlserver", "bit", -7, 1, 0, "boolean"),
        ("sqlserver", "int", 4, 10, 0, "bigint"),
        ("sqlserver", "money", 3, 19, 4, "string"),
        ("sqlserver", "datetime2", 93, 27, 7, "bigint"),
        ("sqlserver", "datetimeoffset", -155, 34, 7, "string"),
        ("sqlserver", "varbinary", -3, 8, 0, "string"),
        ("oracle", "NUMBER", 3, 18, 0, "bigint"),
        ("oracle", "NUMBER", 3, 19, 0, "string"),
        ("oracle", "NUMBER", 3, 0, -127, "string"),
        ("oracle", "DATE", 93, 7, 0, "bigint"),
        ("oracle", "TIMESTAMP(6) WITH TIME ZONE", -101, 13, 6, "string"),
        ("oracle", "BINARY_DOUBLE", 101, 8, 0, "double"),
        ("db2", "DECIMAL", 3, 10, 2, "string"),
        ("db2", "DOUBLE", 8, 53, 0, "double"),
        ("db2", "DATE", 91, 10, 0, "bigint"),
    ],
)
def test_columns_have_the_types_of_the_values_that_debezium_writes(kind, name, code, digits, scale, expected):
    assert spark_type(kind, name, code, digits, scale) == expected
