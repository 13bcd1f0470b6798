"""Claim: a database's changes reach topics nearly as fast as the database itself can send them.

    python benchmarks/capture.py [--rows 200000] [--per-transaction 100] [--only sqlite] [--quick]

Each database has a module of its own (`capture_postgres.py`, `capture_mysql.py`,
`capture_sqlite.py`) that prints rows a second by the wall and by processor time of the reader, and the
ratio to its peer in the same run. Exit code 2 if what is needed is missing, 1 if rows are lost or doubled.
"""

import argparse
import sys
from collections.abc import Callable

import capture_mysql
import capture_postgres
import capture_sqlite

from headrace.testing.kafka import PeerUnavailable

DATABASES: dict[str, Callable[[int, int], bool]] = {
    "sqlite": capture_sqlite.compare,
    "postgres": capture_postgres.compare,
    "mariadb": capture_mysql.compare,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--per-transaction", type=int, default=100)
    parser.add_argument("--only", choices=sorted(DATABASES))
    parser.add_argument("--quick", action="store_true", help="20,000 rows: shows that it works, not how fast")
    chosen = parser.parse_args()
    rows = 20_000 if chosen.quick else chosen.rows
    whole = True
    for name, compare in DATABASES.items():
        if chosen.only in (None, name):
            try:
                whole &= compare(rows, chosen.per_transaction)
            except PeerUnavailable as reason:
                print(reason, file=sys.stderr)
                return 2
    return 0 if whole else 1


if __name__ == "__main__":
    sys.exit(main())
