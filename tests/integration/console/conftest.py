"""One log, one small shop and one console for all of these tests; those that need another start it."""

import datetime
import decimal

import pytest
from confluent_kafka.admin import NewTopic
from tests.integration.console.http_client import ask
from tests.integration.console.shop import Shop

from headrace.client import Connection, admin
from headrace.testing.broker import BrokerProcess
from headrace.testing.console import ConsoleProcess

NEW_YEAR = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def row(region, minute, orders, **more):
    return {
        "region": region,
        "minute": NEW_YEAR + datetime.timedelta(minutes=minute),
        "orders": orders,
        "revenue": decimal.Decimal(orders or 0) / 4,
        "score": float(orders or 0),
        "tags": ["a", None],
        **more,
    }


@pytest.fixture(scope="session")
def our_log(tmp_path_factory):
    """A log of these tests alone: the shop's topics have names that others use too."""
    with BrokerProcess(tmp_path_factory.mktemp("console-log")) as broker:
        yield Connection(bootstrap_servers=broker.bootstrap, retry_timeout_ms=10_000)


@pytest.fixture(scope="session")
def make_topic(our_log):
    """Makes topics; a name is taken once."""
    client = admin(our_log)

    def make(name, partitions=1, **config):
        config = {key.replace("_", "."): str(value) for key, value in config.items()}
        for future in client.create_topics([NewTopic(name, partitions, config=config)]).values():
            future.result(30)
        return name

    return make


@pytest.fixture(scope="session")
def shop(our_log, make_topic, tmp_path_factory):
    """The shop that everybody reads and nobody changes, three regions of ten minutes each."""
    make_topic("orders", 2)
    made = Shop(tmp_path_factory.mktemp("shop"), our_log.bootstrap_servers)
    rows = [
        row(region, minute, 10 * index + minute)
        for index, region in enumerate(["eu", "us", "ä"])
        for minute in range(10)
    ]
    made.apply(rows, offsets={0: 0, 1: 0}, counters={"on_time": 30}, watermark_us=1_767_225_600_000_000)
    return made


@pytest.fixture(scope="session")
def console(our_log, shop):
    with ConsoleProcess(our_log.bootstrap_servers, data=shop.data, heartbeat_ms=500) as process:
        yield process


@pytest.fixture
def get(console):
    return lambda path, **query: ask(console.url, "GET", path, **query)


@pytest.fixture
def post(console):
    return lambda path, body, **headers: ask(
        console.url, "POST", path, body, {name.replace("_", "-"): value for name, value in headers.items()}
    )
