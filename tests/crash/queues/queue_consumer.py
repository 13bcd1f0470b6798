"""A consumer of a queue in a process of its own, to be killed: takes, decides, acknowledges, writes down.

Usage: queue_consumer.py BOOTSTRAP GROUP TOPIC LEDGER SEED LEASE_MS RECORDS_PER_S

Before it acknowledges it notes what it is going to accept ("try"), and when the broker
has confirmed that, it notes that too ("ok"). A kill in between leaves a try without
an ok: then nobody but the broker knows.
"""

import json
import os
import random
import signal
import sys
import time
from collections import defaultdict
from types import FrameType

from confluent_kafka import AcknowledgeType, KafkaException, Message, ShareConsumer

POISON = b"poison"
"""What no consumer can process: rejected each time."""
CURSED = b"cursed"
"""What every consumer gives back: delivered up to the limit."""

_going = True


def _stop(signum: int, frame: FrameType | None) -> None:
    global _going
    _going = False


def choose(message: Message, chance: random.Random) -> AcknowledgeType:
    value = message.value() or b""
    if value.startswith(POISON):
        return AcknowledgeType.REJECT
    if value.startswith(CURSED) or chance.random() < 0.01:
        return AcknowledgeType.RELEASE
    return AcknowledgeType.ACCEPT


def main() -> None:
    bootstrap, group, topic, ledger, seed, lease_ms, pace = sys.argv[1:]
    chance = random.Random(seed)
    signal.signal(signal.SIGTERM, _stop)
    out = os.open(ledger, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def note(what: str, accepted: dict[int, list[int]]) -> None:
        os.write(out, json.dumps([what, accepted]).encode() + b"\n")

    consumer = ShareConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "share.acknowledgement.mode": "explicit",
            "max.poll.records": 40,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "metadata.recovery.strategy": "none",
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    while _going:
        taken = [message for message in consumer.poll(0.5) if message.error() is None]
        if not taken:
            continue
        if chance.random() < 0.02:
            time.sleep(1.5 * int(lease_ms) / 1000)  # slower than its lease: what it says then is too late
        time.sleep(min(len(taken) / float(pace), 0.4 * int(lease_ms) / 1000))
        accepted: dict[int, list[int]] = defaultdict(list)
        for message in taken:
            choice = choose(message, chance)
            consumer.acknowledge(message, choice)
            if choice == AcknowledgeType.ACCEPT:
                accepted[message.partition()].append(message.offset())
        note("try", accepted)
        try:
            outcomes = consumer.commit_sync(20)
        except KafkaException:
            continue
        confirmed = {place.partition for place, error in outcomes.items() if error is None}
        note("ok", {index: offsets for index, offsets in accepted.items() if index in confirmed})
    consumer.close()


if __name__ == "__main__":
    main()
