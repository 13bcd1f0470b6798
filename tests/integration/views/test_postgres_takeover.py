"""A run takes over views in PostgreSQL from one that stands still in the middle of a batch."""

import threading
from contextlib import closing

import pyarrow as pa
import pytest

from headrace.errors import RetriableError
from headrace.testing.kafka import PeerUnavailable
from headrace.testing.postgres_process import PostgresProcess
from headrace.views import ViewSchema, open_store

TIMEOUT_S = 60
VIEW = ViewSchema("counts", ("place",), pa.schema([("place", pa.string()), ("n", pa.int64())]))


@pytest.fixture(scope="module")
def server():
    try:
        with PostgresProcess() as running:
            yield running
    except PeerUnavailable as reason:
        pytest.skip(str(reason))


def begun(store):
    store.prepare(VIEW)
    return store.begin("counts", "query")


def test_what_a_suspended_run_has_open_is_rolled_back_by_the_next_one(server):
    with closing(open_store(server.url())) as before, closing(open_store(server.url())) as after:
        begun(before)
        with pytest.raises(RetriableError), before._transaction() as session:
            session.ledger("counts", lock=True)
            session._connection.execute("INSERT INTO counts VALUES ('here', 1)")
            starting = threading.Thread(target=begun, args=(after,), daemon=True)
            starting.start()
            starting.join(TIMEOUT_S)
            assert not starting.is_alive(), f"the next run still waits after {TIMEOUT_S} s"
            session.ledger("counts")  # it wakes up, and finds that its connection is gone
        assert after.read("counts").num_rows == 0
        assert before.read("counts").num_rows == 0, "it goes on with another connection"


def test_who_only_reads_is_left_alone(server):
    with closing(open_store(server.url())) as reader, closing(open_store(server.url())) as after:
        begun(after)
        with reader._reading("counts") as session:
            begun(after)
            assert session.views() == ["counts"]
