"""A capture of a PostgreSQL in a process of its own, to be killed; prints how many rows its snapshots have.

Arguments: URL, log, name, rows of a chunk, connections of a first load.
"""

import sys

from headrace.capture import CaptureRun, CaptureWriter, Status
from headrace.capture.large_values import return_large_memory
from headrace.capture.postgres import PostgresSource
from headrace.client import Connection


def main(url: str, bootstrap: str, name: str, chunk_rows: str, load_workers: str = "0") -> None:
    def source() -> PostgresSource:
        return PostgresSource.from_url(url, name=name, load_workers=int(load_workers))

    def tell(status: Status) -> None:
        print(status.state, sum(each.rows for each in status.tables.values()), flush=True)

    return_large_memory()
    writer = CaptureWriter(Connection(bootstrap_servers=bootstrap), name)
    CaptureRun(name, source, writer, chunk_rows=int(chunk_rows), on_status=tell).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
