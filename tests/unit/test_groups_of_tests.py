"""Tests that share a server run one after the other in one worker: if xdist and pytest agree on names."""

import pytest

pytestmark = pytest.mark.xdist_group("groups")


def test_a_group_of_tests_is_known_by_its_name_to_the_scheduler(request):
    if not getattr(request.config.option, "loadgroup", False):
        pytest.skip("these tests are not spread by group (`make test` does)")
    assert request.node.nodeid.endswith("@groups"), "groups are not honoured: see requirements/dev.in"
