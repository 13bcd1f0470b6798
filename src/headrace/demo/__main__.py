"""`python -m headrace.demo`, which `make demo` runs."""

import argparse
import sys

from headrace.demo import run
from headrace.errors import HeadraceError


def main() -> int:
    parser = argparse.ArgumentParser(prog="headrace demo", description="Run the demonstration.")
    parser.add_argument(
        "--seconds", type=float, default=20, help="how long the shop lives after its first result"
    )
    parser.add_argument("--rate", type=int, default=2000, help="events a second")
    parser.add_argument("--data", help="an empty folder to keep everything in (default: a temporary one)")
    parser.add_argument(
        "--bootstrap", help="use the log at host:port, ours or Kafka, instead of starting one"
    )
    given = parser.parse_args()
    try:
        return run(given.seconds, rate=given.rate, data=given.data, bootstrap=given.bootstrap)
    except HeadraceError as error:
        print(f"headrace demo: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
