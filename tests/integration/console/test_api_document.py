"""Schemathesis reads the API's own document and sends what it allows and what it does not: no 500s.

Answers must also be what the document says: status, media type, shape.
"""

import time

import pytest
import schemathesis
from confluent_kafka.admin import NewTopic
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from tests.integration.console.conftest import row
from tests.integration.console.shop import Shop, compared

from headrace.client import Connection, admin
from headrace.console.api.openapi import document
from headrace.console.api.schemas import COMMON as SHAPES
from headrace.console.routes import ROUTES, SCHEMAS
from headrace.testing.broker import BrokerProcess
from headrace.testing.console import ConsoleProcess
from headrace.views.rebuilt import Rebuilds

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
COMMON = {
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
    "phases": [Phase.explicit, Phase.generate],
    "derandomize": False,
    "database": None,
}


@pytest.fixture(scope="module")
def api():
    return schemathesis.openapi.from_dict(document(ROUTES, SHAPES | SCHEMAS))


schema = schemathesis.pytest.from_fixture("api")  # read when a test runs: it takes as long as collecting all


@pytest.fixture(scope="module")
def console(tmp_path_factory):
    """On a log of its own: these requests delete topics, if they happen to name one."""
    folder = tmp_path_factory.mktemp("document")
    with BrokerProcess(folder / "log") as broker:
        client = admin(Connection(bootstrap_servers=broker.bootstrap))
        client.create_topics([NewTopic("orders", 2)])["orders"].result(30)
        shop = Shop(folder, broker.bootstrap)
        shop.apply([row("eu", minute, minute) for minute in range(5)], offsets={0: 0, 1: 0})
        differing = compared([row("eu", 0, 1), row("us", 0, 3)], [row("eu", 0, 2), row("ä", 0, 4)])
        Rebuilds(folder).note("revenue", "q-2", differing)
        with ConsoleProcess(broker.bootstrap, data=folder) as process:
            yield process


def check(case, console):
    if isinstance(case.body, dict) and type(case.body.get("partitions")) is int:
        case.body["partitions"] = min(case.body["partitions"], 3)  # thousands keep the log busy for minutes
    response = case.call(base_url=console.url, timeout=90)
    deadline = time.monotonic() + 60
    while response.status_code == 503 and "Retry-After" in response.headers and time.monotonic() < deadline:
        response = case.call(base_url=console.url, timeout=90)  # a log that is busy for a moment: as it says
    assert response.status_code != 500, console.output()[-3000:]
    case.validate_response(response, checks=CHECKS)


@schema.parametrize()
@settings(max_examples=3, **COMMON)
def test_no_request_that_the_document_allows_is_a_defect(case, console):
    check(case, console)


def test_the_comparison_of_a_rebuilt_view_is_as_the_document_says(api, console):
    case = api["/v1/views/{view}/rebuilt"]["GET"].Case(path_parameters={"view": "revenue"})
    response = case.call(base_url=console.url)
    assert (response.status_code, len(response.json()["comparison"]["differences"])) == (200, 3)
    case.validate_response(response, checks=CHECKS)


@pytest.mark.slow
@schema.parametrize()
@settings(max_examples=400, **COMMON)
def test_many_requests_that_the_document_allows(case, console):
    check(case, console)
