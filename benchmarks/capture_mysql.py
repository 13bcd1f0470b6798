"""MariaDB to topics, beside `mariadb-binlog`, which writes the server's own stream to nowhere.

One load: each reader gets the same bytes of the same binary log, one after the other, so that a
shared machine changes its speed for all of them. The reader of our own is measured twice: decoding
alone, and all the way into topics in transactions, with cuts and state. The snapshot is of
the same rows.
"""

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from capture_postgres import BAR_OF_SENDER, Measured, RunningCapture, decoded

from headrace.capture.mysql import MysqlAddress, MysqlSource
from headrace.capture.mysql.wire.connection import Connection as Mysql
from headrace.testing.broker import BrokerProcess
from headrace.testing.kafka import PeerUnavailable
from headrace.testing.mysql_process import PASSWORD, USER, MysqlProcess

__all__ = ["compare"]

TABLE = (
    "CREATE TABLE orders (id bigint PRIMARY KEY, customer varchar(40), amount decimal(12,2), "
    "created timestamp(6), note text)"
)
ROWS = (
    "INSERT INTO orders WITH RECURSIVE g (n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM g "
    "WHERE n < {last}) SELECT n, concat('customer ', n % 1000), n % 10000 / 100.0, now(6), md5(n) FROM g"
)


def compare(rows: int, per_transaction: int) -> bool:
    """Prints all figures; whether every reader had every row once."""
    if shutil.which("mariadb-binlog") is None:
        raise PeerUnavailable("no mariadb-binlog here; apt-get install mariadb-server")
    with MysqlProcess("mariadb") as server, tempfile.TemporaryDirectory() as folder:
        address = MysqlAddress.parse(server.url("shop"))
        with Mysql(address, PASSWORD) as database, BrokerProcess(Path(folder)) as broker:
            print(f"MariaDB {database.greeting.version}, {rows:,} rows, {per_transaction} a transaction")
            return _compare(server, database, broker.bootstrap, rows, per_transaction)


def _compare(server: MysqlProcess, database: Mysql, bootstrap: str, rows: int, per_transaction: int) -> bool:
    for statement in ("CREATE DATABASE shop", "USE shop", TABLE):
        database.query(statement)
    source = _source(database, "decoder")
    start = source.connect(None)
    source.close()
    with RunningCapture(bootstrap, _source(database, "topics"), "topics") as capture:
        capture.wait_streaming()
    for first in range(1, rows + 1, per_transaction):
        database.query(ROWS.format(first=first, last=min(first + per_transaction - 1, rows)))
    sender = _sender(server, str(start["file"]), rows)
    decoder = decoded(_source(database, "decoder"), start, rows)
    with RunningCapture(bootstrap, _source(database, "topics"), "topics") as capture:
        topics = capture.wait_changes(rows)
    with RunningCapture(bootstrap, _source(database, "snapshot"), "snapshot") as capture:
        snapshot = capture.wait_streaming()
    for each in (sender, decoder, topics, snapshot):
        print(each)
    for each in (decoder, topics):
        ratio = each.rows / each.wall_s / (sender.rows / sender.wall_s)
        print(f"{each.name}: {ratio:.2f} of the sender by the wall (bar {BAR_OF_SENDER})")
    return decoder.rows == topics.rows == snapshot.rows == rows


def _source(database: Mysql, name: str) -> MysqlSource:
    return MysqlSource(database.address, PASSWORD, name=name)


def _sender(server: MysqlProcess, file: str, rows: int) -> Measured:
    """The whole log from the server to files, which is what its own tool can do at most."""
    command = ["mariadb-binlog", "--no-defaults", "--read-from-remote-server", "--raw", "--to-last-log"]
    command += ["-h127.0.0.1", f"-P{server.port}", f"-u{USER}", f"-p{PASSWORD}", file]
    with tempfile.TemporaryDirectory() as folder:
        began, before = time.perf_counter(), os.times()
        subprocess.run(command, check=True, capture_output=True, cwd=folder)
        after = os.times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return Measured("mariadb-binlog, to a file", rows, time.perf_counter() - began, cpu_s)
