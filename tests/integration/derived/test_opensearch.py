"""Indexes of a real OpenSearch: what its searches find, and what becomes of writes that come late."""

import json
import urllib.request
import uuid

import pytest
from tests.contract.derived_targets import opened
from tests.integration.derived.conftest import create_topic, following, has_all, send, wait_until

from headrace import crash_points, derived
from headrace.client import Connection
from headrace.derived import Follow, verify_follow
from headrace.derived.state import FollowState
from headrace.errors import FencedError, HeadraceError
from headrace.testing.opensearch import OpenSearchProcess

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("opensearch")]
STATE = FollowState(topic="t", topic_id="i", owner="one", positions={0: 0})
ROWS = [(b'{"id":%d}' % each, {"id": each, "name": f"name {each}"}) for each in range(50)]


def never(key, why):
    raise AssertionError(f"{key!r}: {why}")


def asked(server, path, method="GET", body=None):
    """What the server answers to somebody else."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        server.url() + path, data, {"Content-Type": "application/json"}, method=method
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def documents(server, index):
    asked(server, f"/{index}/_refresh", "POST")
    found = asked(server, f"/{index}/_search?size=1000")["hits"]["hits"]
    return {each["_id"]: each["_source"] for each in found}


@pytest.fixture
def index():
    return f"rows-{uuid.uuid4()}"


def into(server, index):
    return derived.opensearch(server.url(), index)


def followed(bootstrap, server, index):
    topic = f"os-{uuid.uuid4()}"
    create_topic(bootstrap, topic)
    send(bootstrap, topic, ROWS)
    return Follow(name=topic, topic=topic, into=into(server, index))


def is_equal(bootstrap, follow, count):
    found = verify_follow(follow, Connection(bootstrap_servers=bootstrap))
    return found.is_equal and found.rows == count and not found.building


def test_searches_find_rows_by_their_fields(opensearch, index):
    target = opened(into(opensearch, index))
    target.claim(STATE)
    rows = {b'{"id":7}': {"id": 7, "name": "Ann Lee", "tags": ["a", "b"], "more": {"x": 1}}}
    target.apply(rows, (), STATE, never)
    target.close()
    assert documents(opensearch, index) == {
        "7": {"id": 7, "name": "Ann Lee", "tags": ["a", "b"], "more": '{"x":1}'}
    }
    query = {"query": {"bool": {"must": [{"match": {"name": "ann"}}, {"term": {"tags": "b"}}]}}}
    found = asked(opensearch, f"/{index}/_search", "POST", query)["hits"]["hits"]
    assert [each["_id"] for each in found] == ["7"]


def test_a_document_that_the_mapping_refuses_is_left_as_it_was(opensearch, index):
    asked(opensearch, f"/{index}", "PUT", {"mappings": {"properties": {"day": {"type": "date"}}}})
    target, refused = opened(into(opensearch, index)), []
    target.claim(STATE)
    target.apply({b"1": {"day": "2026-02-03"}, b"2": {"id": 2}}, (), STATE, never)
    target.apply({b"1": {"day": "never"}, b"2": {"id": 3}}, (), STATE, lambda key, why: refused.append(key))
    assert refused == [b"1"]
    assert documents(opensearch, index) == {"1": {"day": "2026-02-03"}, "2": {"id": 3}}


@pytest.mark.parametrize("deleted", [False, True])
def test_writes_of_a_process_that_was_overtaken_do_nothing_however_late(opensearch, index, deleted):
    late, newer = (opened(into(opensearch, index)) for _ in range(2))
    late.claim(STATE)
    late.apply({b"1": {"n": 0}}, (), STATE, never)
    send_bulk = late._bulk

    def overtaken(part, state):
        newer.claim(FollowState(topic="t", topic_id="i", owner="two"))
        newer.apply({} if deleted else {b"1": {"n": 2}}, [b"1"] if deleted else (), newer.state(), never)
        return send_bulk(part, state)

    late._bulk = overtaken
    with pytest.raises(FencedError):
        late.apply({b"1": {"n": 1}}, (), STATE.moved({0: 5}, 0), never)
    assert documents(opensearch, index) == ({} if deleted else {"1": {"n": 2}})
    assert newer.state().owner == "two"


def test_a_death_between_rows_and_position_is_seen_as_building_until_it_is_through(opensearch, index):
    target = opened(into(opensearch, index))
    target.claim(STATE)

    def dies(point):
        if point == "ledger written":
            raise KeyboardInterrupt

    crash_points.watch(dies)
    try:
        with pytest.raises(KeyboardInterrupt):
            target.apply({b"1": {"n": 1}}, (), STATE.moved({0: 9}, 0), never)
    finally:
        crash_points._watchers.remove(dies)
    again = opened(into(opensearch, index))
    assert again.state().is_building and again.state().positions == {0: 0}
    again.apply({b"1": {"n": 1}}, (), STATE.moved({0: 4}, 0), never)
    assert again.state().is_building and again.state().positions == {0: 4}
    again.apply({}, [b"1"], STATE.moved({0: 9}, 0), never)
    assert not again.state().is_building and documents(opensearch, index) == {}


def test_rows_whose_position_was_lost_are_written_again_whatever_their_versions(bootstrap, opensearch, index):
    follow = followed(bootstrap, opensearch, index)
    with following(bootstrap, follow) as run:
        wait_until(lambda: has_all(run))
    asked(opensearch, f"/headrace-followers/_doc/{index}:{follow.name}", "DELETE")
    future = 10**15
    asked(opensearch, f"/{index}/_doc/3?version={future}&version_type=external", "PUT", {"id": "tampered"})
    with following(bootstrap, follow) as run:
        wait_until(lambda: run.status.repairs >= 1 and has_all(run))
    assert is_equal(bootstrap, follow, 50) and documents(opensearch, index)["3"] == ROWS[3][1]


def test_an_index_that_is_removed_is_built_again(bootstrap, opensearch, index):
    follow = followed(bootstrap, opensearch, index)
    with following(bootstrap, follow) as run:
        wait_until(lambda: has_all(run))
        asked(opensearch, f"/{index}", "DELETE")
        send(bootstrap, follow.topic, [(b'{"id":900}', {"id": 900})])
        wait_until(lambda: len(safely(lambda: documents(opensearch, index))) == 51)
        wait_until(lambda: has_all(run))
    assert is_equal(bootstrap, follow, 51)


def safely(read):
    try:
        return read()
    except (OSError, HeadraceError):
        return {}


def test_a_server_that_is_killed_is_waited_for(bootstrap, opensearch, index):
    with OpenSearchProcess() as server:
        follow = followed(bootstrap, server, index)
        with following(bootstrap, follow) as run:
            wait_until(lambda: has_all(run))
            server.stop()
            send(bootstrap, follow.topic, [(b'{"id":1}', None), (b'{"id":900}', {"id": 900})])
            wait_until(lambda: run.status.state == "reconnecting")
            server.start()
            wait_until(lambda: has_all(run) and is_equal(bootstrap, follow, 50), 120)
