"""A capture of a MySQL or MariaDB in a process of its own, to be killed: URL, log, name, rows of a chunk."""

import sys

from headrace.capture import CaptureRun, CaptureWriter
from headrace.capture.mysql import MysqlSource
from headrace.client import Connection


def main(url: str, bootstrap: str, name: str, chunk_rows: str) -> None:
    writer = CaptureWriter(Connection(bootstrap_servers=bootstrap), name)
    CaptureRun(name, lambda: MysqlSource.from_url(url, name=name), writer, chunk_rows=int(chunk_rows)).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
