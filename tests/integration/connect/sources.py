"""The file source connector, as both ways of running Connect are told about it."""

import os
import random
from pathlib import Path

from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

TOPIC = "lines"

# A dead worker is noticed in seconds, or the tests would mostly wait for that.
QUICK = {
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "500",
    "scheduled.rebalance.max.delay.ms": "0",
}


# More than a file ever has. When a batch is full the connector keeps the lines it has already
# read to itself until the file grows again, and ours stops growing.
NEVER_FULL = "1000000"


def file_source(path: Path) -> dict[str, str]:
    return {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "tasks.max": "1",
        "file": str(path),
        "topic": TOPIC,
        "batch.size": NEVER_FULL,
        "exactly.once.support": "required",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    }


def seeded() -> random.Random:
    """The moments of the kills; the seed is printed, and taken from the environment to repeat them."""
    seed = int(os.environ.get("HEADRACE_CONNECT_SEED", random.randrange(1 << 32)))
    print(f"HEADRACE_CONNECT_SEED={seed}")
    return random.Random(seed)


def assert_compacted(bootstrap: str, *topics: str) -> None:
    """The topics in which Connect keeps what it must know after a crash."""
    wanted = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.describe_configs(wanted)
    policies = {each.name: found[each].result(30)["cleanup.policy"].value for each in wanted}
    assert policies == dict.fromkeys(topics, "compact")
