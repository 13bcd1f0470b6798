"""A client in a process of its own: `python -m recorded.client '{"role": …}'`.

It works until it is killed, or told to end (SIGTERM), or fenced by a newer instance; then it
ends with exit code 0. What it does is in its history, not in its output.
"""

import json
import random
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from recorded.recorder import Recorder

__all__ = ["DERIVED", "PARTITIONS", "PAUSE_S", "SOURCE", "TIMEOUT_S", "TRANSACTION_MS", "Job"]

SOURCE, DERIVED = "source", "derived"
PARTITIONS = 4
TIMEOUT_S = 30.0
# Longer than a campaign: nobody is fenced but by a successor, however slow the machine is.
TRANSACTION_MS = 900_000
PAUSE_S = 0.02


@dataclass(slots=True, kw_only=True)
class Job:
    """What a client is to be; `name` outlives its processes, `process` is this one."""

    role: str
    name: str
    process: str
    port: int
    path: str
    seed: int
    settings: dict[str, object] = field(default_factory=dict)
    stopping: bool = False  # set by a signal: an Event would wait for itself there

    def recorder(self) -> Recorder:
        return Recorder(Path(self.path), self.process)

    def choices(self) -> random.Random:
        return random.Random(f"{self.seed}/{self.process}")

    def rest(self) -> bool:
        """A pause, so that a dozen clients share two cores; whether to go on after it."""
        time.sleep(PAUSE_S)
        return not self.stopping

    def librdkafka(self, **more: object) -> dict[str, object]:
        """Settings of librdkafka: comes back quickly, says nothing, gives up on nothing."""
        return {
            "bootstrap.servers": f"127.0.0.1:{self.port}",
            "client.id": self.process,
            "reconnect.backoff.ms": 5,
            "reconnect.backoff.max.ms": 50,
            "metadata.recovery.strategy": "none",  # looking a lone node up anew takes seconds
            "log_level": 0,
            **{key.replace("_", "."): value for key, value in more.items()},
            **self.settings,
        }


def main() -> None:
    from recorded import bare, consumers, producers, transformer

    roles = {
        "idempotent": producers.run_idempotent,
        "transactional": producers.run_transactional,
        "bare": bare.run,
        "transformer": transformer.run,
        "live": consumers.run_live,
        "member": consumers.run_member,
    }
    job = Job(**json.loads(sys.argv[1]))

    def stop(_: int, __: FrameType | None) -> None:
        job.stopping = True

    signal.signal(signal.SIGTERM, stop)
    roles[job.role](job)


if __name__ == "__main__":
    main()
