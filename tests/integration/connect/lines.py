"""A file that grows line by line, and a reader of what became of the lines on the log."""

import threading
from pathlib import Path

import confluent_kafka as ck

PACE_S = 0.01
LINES_AT_ONCE = 20
PATIENCE_S = 120


class LineWriter:
    """Appends numbered lines to a file, a few every some milliseconds, until it is told to stop."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.written = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "LineWriter":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def finish(self) -> list[str]:
        """Stops; every line that was written, in order."""
        self._stop.set()
        self._thread.join()
        return [_line(number) for number in range(self.written)]

    def _run(self) -> None:
        with self.path.open("a") as file:
            while not self._stop.wait(PACE_S):
                upto = self.written + LINES_AT_ONCE
                file.write("".join(_line(number) + "\n" for number in range(self.written, upto)))
                file.flush()
                self.written = upto


def _line(number: int) -> str:
    return f"line {number:07}"


class CommittedReader:
    """Reads a partition from its start as a consumer of committed records does, and keeps every value."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.lines: list[str] = []
        self._consumer = ck.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "reader-of-lines",
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
                "enable.auto.commit": False,
                "allow.auto.create.topics": False,
                "topic.metadata.refresh.interval.ms": 200,
                "reconnect.backoff.max.ms": 200,
                "fetch.wait.max.ms": 50,
                "log_level": 0,
            }
        )
        self._consumer.assign([ck.TopicPartition(topic, 0, 0)])

    def wait_for(self, count: int, patience_s: float = PATIENCE_S) -> None:
        """Reads on until it has `count` lines; TimeoutError when that takes too long."""
        give_up = threading.Event()
        timer = threading.Timer(patience_s, give_up.set)
        timer.start()
        try:
            while len(self.lines) < count:
                self._take(self._consumer.poll(0.2))
                if give_up.is_set():
                    raise TimeoutError(f"{len(self.lines)} of {count} lines within {patience_s} s")
        finally:
            timer.cancel()

    def wait_for_new(self, writer: LineWriter, count: int) -> None:
        """Reads on until it has `count` lines that are yet to be written: whoever ships them is at work."""
        self.wait_for(writer.written + count)

    def drain(self) -> None:
        """What else is there right now: with everything expected read, anything more is a duplicate."""
        while (message := self._consumer.poll(1)) is not None:
            self._take(message)

    def close(self) -> None:
        self._consumer.close()

    def _take(self, message: ck.Message | None) -> None:
        if message is None:
            return
        if message.error() is None:
            self.lines.append(message.value().decode())
        else:  # no topic yet, or no broker at this moment; but never a position that is not there
            assert message.error().code() != ck.KafkaError._AUTO_OFFSET_RESET, message.error()
