"""A process that writes a view, or records, batch by batch, and kills itself at a named step.

Called with JSON: what to write (`view` or `records`), where (`url`), the query, how many
batches, and where to die: at which step of which batch.
"""

import json
import os
import signal
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "contract")]

from view_stores import COUNTS, batch, put, remove, row  # noqa: E402

from headrace import crash_points  # noqa: E402
from headrace.client import Connection  # noqa: E402
from headrace.client.topics import TopicSettings  # noqa: E402
from headrace.client.write import OutputRecord, RecordSink  # noqa: E402
from headrace.views import ViewBatch, open_store  # noqa: E402

REGIONS = 6


def content(number: int, query: str) -> ViewBatch:
    """Batch `number`: a window of its own, a correction of the one before, a row that is taken back."""
    changes = [put(row(f"r{index}", number, index)) for index in range(REGIONS)]
    if number:
        changes.append(put(row("r0", number - 1, 100 + number), before=row("r0", number - 1, 0)))
        changes.append(remove(row("r1", number - 1, 1)))
    return batch(
        number, *changes, query=query, offsets={"t": {0: 10 * (number + 1)}}, counters={"on_time": REGIONS}
    )


def records(topic: str, number: int) -> list[OutputRecord]:
    return [OutputRecord(topic, b"%d" % index, b"%d.%d" % (number, index)) for index in range(REGIONS)]


def main(order: dict) -> None:
    current = -1

    def die(step: str) -> None:
        if (current, step) == (order["batch"], order["step"]):
            os.kill(os.getpid(), signal.SIGKILL)

    crash_points.watch(die)
    if order["what"] == "view":
        store = open_store(order["url"])
        store.prepare(COUNTS)
        store.begin("counts", order["query"])
        apply = lambda number: store.apply("counts", content(number, order["query"]))  # noqa: E731
    else:
        topic = order["topic"]
        log = Connection(bootstrap_servers=order["bootstrap"])
        sink = RecordSink(log, topic, order["query"], topics={topic: TopicSettings(partitions=2)})
        sink.open()
        apply = lambda number: sink.write(number, records(topic, number))  # noqa: E731
    for number in range(order["from"], order["to"]):
        current = number
        print(json.dumps([number, apply(number)]), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
