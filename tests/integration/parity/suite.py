"""All cases, in the order of the list, and Kafka's answers to them."""

import json
from pathlib import Path
from typing import Any

from parity import (  # noqa: F401 - each adds its cases
    access,
    classic_groups,
    configs,
    consumer_groups,
    fetch,
    group_offsets,
    idempotence,
    login,
    offsets,
    produce,
    protocol,
    topics,
    transaction_ends,
    transaction_views,
    transactions,
)
from parity.case import CASES, Case
from parity.stage import Stage

__all__ = ["ANSWERS", "ordered_cases", "run"]

ANSWERS = Path(__file__).with_name("answers.json")

_AREAS = (
    "versions", "cluster", "coordinators", "metadata", "create topics", "delete topics", "create partitions",
    "describe configs", "alter configs", "produce", "idempotent producers", "fetch", "list offsets",
    "delete records", "leader epochs", "joining a group", "life in a group", "committed offsets",
    "administering groups", "server-side groups", "transactional producers", "transactions",
    "offsets in transactions", "reading transactions", "administering transactions", "logging in",
    "without permission", "permissions",
)  # fmt: skip


def ordered_cases() -> list[Case]:
    return sorted(CASES.values(), key=lambda each: _AREAS.index(each.area))


def run(case: Case, stage: Stage) -> Any:
    """What a client saw, as JSON has it."""
    try:
        return json.loads(json.dumps(case.run(stage)))
    finally:
        stage.close()
