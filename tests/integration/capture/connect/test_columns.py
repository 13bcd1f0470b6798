"""The columns of tables that Debezium reads, which it does not tell: what a run makes of them."""

import pytest
from tests.integration.capture.postgres.conftest import started
from tests.integration.capture.postgres.databases import Database
from tests.integration.capture.reading import read_topic

from headrace.capture import CaptureSpec
from headrace.capture.connect.run import ConnectRun
from headrace.client import Connection

pytestmark = pytest.mark.xdist_group("postgres")


def test_columns_that_change_are_written_once_and_a_database_that_is_down_is_no_reason_to_stop(bootstrap):
    def described() -> list[list[str]]:
        read = read_topic(bootstrap, "looked.schema")
        return [[column["name"] for column in each.value["columns"]] for each in read]

    with started() as server, Database(server, "shop") as database:
        database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
        spec = CaptureSpec(name="looked", url="debezium+" + server.url("shop"), tables=("t",))
        run = ConnectRun(spec, Connection(bootstrap_servers=bootstrap))
        run._state = run._writer.open()
        for _ in range(2):
            run._describe_again()
        database.run("ALTER TABLE t RENAME v TO w")
        run._describe_again()
        database.disconnect()
        server.stop()
        run._describe_again()
        server.start()
        run._describe_again()
        run._writer.close()
    assert described() == [["id", "v"], ["id", "w"]]
