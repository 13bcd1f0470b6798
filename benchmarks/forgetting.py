"""How long it takes to forget a subject, by the size of the log.

The key is destroyed at once; then the log is searched for values in the clear. Beside it, what forgetting
would cost without keys: copying every segment, synced, as a rewrite without the subject's records must.

    .venv/bin/python benchmarks/forgetting.py [--gigabytes 1.2]
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import Producer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.unit.sourcing.customers import customer_type, order_type

from headrace.client import Connection
from headrace.personal import forget, key_place, open_keys
from headrace.sourcing import clear_records, create_entity_topics
from headrace.sourcing.records import Event
from headrace.testing.broker import BrokerProcess

APP = "shop"
SUBJECTS = 10_000
PADDING = "x" * 600
PARTITIONS = 4


def fill(bootstrap, keys, gigabytes):
    """Events of many subjects, about so many bytes: of customers, who are subjects, and of orders, which name
    theirs."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 20,
            "batch.size": 1 << 20,
            "partitioner": "murmur2_random",
        }
    )
    sealed = keys.seal("c-1", "Ann")
    written, number = 0, 0
    while written < gigabytes * 1e9:
        subject = f"c-{number % SUBJECTS}"
        for kind, type_, data in (
            ("customer", "Registered", {"name": sealed, "country": PADDING}),
            ("order", "Placed", {"customer": subject, "address": sealed, "note": PADDING}),
        ):
            event = Event(
                entity=subject, version=number // SUBJECTS + 1, type=type_, data=data, at_ms=0, command="c"
            )
            while True:
                try:
                    producer.produce(
                        f"{APP}.{kind}.events", event.value(), subject, headers=list(event.headers())
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
            written += len(event.value()) + 200
        number += 1
        producer.poll(0)
    assert producer.flush(600) == 0


def log_bytes(folder):
    return sum(path.stat().st_size for path in folder.rglob("*.log"))


def rewritten_s(folder, scratch):
    """Copying every segment, each synced."""
    began = time.perf_counter()
    for number, path in enumerate(folder.rglob("*.log")):
        target = scratch / f"{number}.log"
        with path.open("rb") as source, target.open("wb") as file:
            shutil.copyfileobj(source, file, 1 << 20)
            file.flush()
            os.fsync(file.fileno())
        target.unlink()
    return time.perf_counter() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--gigabytes", type=float, default=1.2)
    parser.add_argument(
        "--folder", type=Path, default=None, help="where the log goes; default: a temporary one"
    )
    given = parser.parse_args()
    kinds = [customer_type(partitions=PARTITIONS), order_type(partitions=PARTITIONS)]
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        keys = open_keys(key_place(folder))
        for number in range(SUBJECTS):
            keys.seal(f"c-{number}", "Ann")
        with BrokerProcess(folder / "log") as broker:
            connection = Connection(bootstrap_servers=broker.bootstrap)
            create_entity_topics(connection, APP, kinds)
            fill(broker.bootstrap, keys, given.gigabytes)
            size_gb = log_bytes(folder / "log") / 1e9
            found = {"log_gb": round(size_gb, 2)}
            searched = {
                "the entity is the subject": [kinds[0]],
                "a field names the subject": [kinds[1]],
                "both": kinds,
            }
            for number, (what, asked) in enumerate(searched.items(), 1):
                described = [each.describe() for each in asked]
                clearing = [0.0, 0.0]

                def clear(subject, described=described, clearing=clearing):
                    clearing[0] = time.perf_counter()
                    cleared = clear_records(connection, APP, described, f"{APP}.entities", subject)
                    clearing[1] = time.perf_counter()
                    return cleared

                began, spent = time.perf_counter(), time.process_time()
                receipt = json.loads(forget(keys, f"c-{number}", at_ms=number, clear=clear).read_bytes())
                assert receipt["left"] == [], receipt
                found[what] = {
                    "destroyed_s": round(clearing[0] - began, 3),
                    "searched_s": round(clearing[1] - clearing[0], 2),
                    "processor_s": round(time.process_time() - spent, 2),
                    "whole_s": round(time.perf_counter() - began, 2),
                }
            copied_s = rewritten_s(folder / "log", folder)
            found["copying every segment, synced"] = {
                "s": round(copied_s, 2),
                "s_per_gb": round(copied_s / size_gb, 2),
            }
            found["both, s per GB"] = round(found["both"]["whole_s"] / size_gb, 2)
        keys.close()
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
