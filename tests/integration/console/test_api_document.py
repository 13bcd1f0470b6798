"""Schemathesis reads the API's own document and sends what it allows and what it does not: no 500s.

Answers must also be what the document says: status, media type, shape.
"""

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from headrace.console.openapi import document
from headrace.console.schemas import COMMON as SHAPES
from headrace.console.table import ROUTES, SCHEMAS

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
COMMON = {
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
    "phases": [Phase.explicit, Phase.generate],
    "derandomize": False,
    "database": None,
}


schema = schemathesis.openapi.from_dict(document(ROUTES, SHAPES | SCHEMAS))


def check(case, console):
    if isinstance(case.body, dict) and type(case.body.get("partitions")) is int:
        case.body["partitions"] = min(case.body["partitions"], 3)  # thousands keep the log busy for minutes
    response = case.call(base_url=console.url, timeout=60)
    assert response.status_code != 500, console.output()[-3000:]
    case.validate_response(response, checks=CHECKS)


@schema.parametrize()
@settings(max_examples=3, **COMMON)
def test_no_request_that_the_document_allows_is_a_defect(case, console):
    check(case, console)


@pytest.mark.slow
@schema.parametrize()
@settings(max_examples=400, **COMMON)
def test_many_requests_that_the_document_allows(case, console):
    check(case, console)
