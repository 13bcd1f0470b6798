"""The table of routes, and the document that is made of it."""

import json
import re

import pytest

from headrace.console.api.openapi import document
from headrace.console.api.schemas import COMMON
from headrace.console.routes import ROUTES, SCHEMAS
from headrace.console.security import Role

DOCUMENT = document(ROUTES, COMMON | SCHEMAS)


def name_of(route):
    return f"{route.method} {route.path}"


NAMES = [name_of(each) for each in ROUTES]


def test_every_route_is_there_once():
    assert len(set(NAMES)) == len(NAMES)
    operations = [each["operationId"] for path in DOCUMENT["paths"].values() for each in path.values()]
    assert len(set(operations)) == len(operations)


def test_every_shape_that_is_named_exists_and_every_shape_is_used():
    named = set(re.findall(r"#/components/schemas/(\w+)", json.dumps(DOCUMENT)))
    assert named <= DOCUMENT["components"]["schemas"].keys()
    assert DOCUMENT["components"]["schemas"].keys() - named == set()


@pytest.mark.parametrize("route", ROUTES, ids=NAMES)
def test_parameters_of_the_path_are_declared(route):
    in_path = set(re.findall(r"{(\w+)(?::path)?}", route.path))
    assert in_path == {each.name for each in route.parameters if each.place == "path"}


@pytest.mark.parametrize("route", [each for each in ROUTES if each.changes], ids=name_of)
def test_whatever_changes_something_needs_a_role_and_is_audited(route):
    if route.tag == "session":
        return
    assert route.role >= Role.WRITER
    assert route.audited


@pytest.mark.parametrize("route", [each for each in ROUTES if each.role == Role.NOBODY], ids=name_of)
def test_what_anybody_may_see_tells_nothing_of_the_data(route):
    assert route.tag in ("page", "service", "session")
