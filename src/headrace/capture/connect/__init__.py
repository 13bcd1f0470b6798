"""Databases to topics: a Kafka Connect worker, run and watched over from Python.

`ConnectWorker` runs Connect's distributed herder, without its REST server, in a
process and a JVM of its own, on whichever log it is told: ours or Kafka. What it
needs to know again after a crash (connectors, offsets, states) it keeps in three
compacted topics there, so that a worker that is killed is simply started again.
Source connectors write records and their own positions in one transaction.

Records never pass through Python. May import `client` and what is below it;
jpype in the worker's own process only.
"""

from headrace.capture.connect.settings import ConnectSettings, worker_properties
from headrace.capture.connect.worker import ConnectorStatus, ConnectWorker, TaskStatus

__all__ = ["ConnectSettings", "ConnectWorker", "ConnectorStatus", "TaskStatus", "worker_properties"]
