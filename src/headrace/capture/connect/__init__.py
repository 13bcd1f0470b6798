"""Databases to topics: a Kafka Connect worker, run and watched over from Python.

`ConnectWorker` runs Connect's distributed herder, without its REST server, in a
process and a JVM of its own, on whichever log it is told: ours or Kafka. What it
needs to know again after a crash (connectors, offsets, states) it keeps in three
compacted topics there, so that a worker that is killed is simply started again.
Source connectors write records and their own positions in one transaction.

`ConnectRun` is a capture by one of Debezium's connectors on such a worker, with the same
contract as `CaptureRun`: `DebeziumAddress` is its URL, `databases` says what may be set,
`connector` makes the connector's configuration of it, and `tables` looks at the database.

Records never pass through Python. May import `client` and what is below it;
jpype in processes of their own only (`host`, `inspect`).
"""

from headrace.capture.connect.address import DebeziumAddress
from headrace.capture.connect.databases import DATABASES, check_settings
from headrace.capture.connect.jars import EXTRAS, fetch_extra, is_fetched
from headrace.capture.connect.run import ConnectRun, connect_topics
from headrace.capture.connect.settings import ConnectSettings, worker_properties
from headrace.capture.connect.tables import check, describe, own_source
from headrace.capture.connect.worker import ConnectorStatus, ConnectWorker, TaskStatus

__all__ = [
    "DATABASES",
    "EXTRAS",
    "ConnectRun",
    "ConnectSettings",
    "ConnectWorker",
    "ConnectorStatus",
    "DebeziumAddress",
    "TaskStatus",
    "check",
    "check_settings",
    "connect_topics",
    "describe",
    "fetch_extra",
    "is_fetched",
    "own_source",
    "worker_properties",
]
