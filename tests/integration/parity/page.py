"""Writes docs/reference/kafka-cases.md from the cases: `python -m parity.page`; a test compares it.

With `--answers` it first asks a live Kafka and writes `answers.json`. Run it in
`tests/integration`.
"""

import json
import sys
from pathlib import Path
from typing import Any

from headrace.wire import ErrorCode
from parity.case import Case
from parity.logs import kafka_secured_stage, kafka_stage
from parity.suite import ANSWERS, ordered_cases, run

__all__ = ["PAGE", "main", "written"]

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "kafka-cases.md"
HEAD = """\
# The cases compared with Kafka, one by one

Each case is a short program that runs on Headrace and on Kafka 4.3; [Kafka compatibility](kafka.md)
explains how they are compared and what differs by design. This page is generated from the cases in
`tests/integration/parity` (`python -m parity.page`), and a test checks that it is up to date.

"""


def listed(cases: list[Case], answers: dict[str, Any]) -> str:
    """The cases as a list of areas, each with a number and Kafka's codes; those that differ are marked."""
    lines, area = [], None
    for number, case in enumerate(cases, 1):
        if case.area != area:
            area = case.area
            lines.append(f"\n**{area[0].upper()}{area[1:]}**\n\n")
        mark = " (differs)" if case.differs else ""
        lines.append(f"{number}. {case.title}{_codes(case, answers)}{mark}\n")
    return "".join(lines)


def _codes(case: Case, answers: dict[str, Any]) -> str:
    """The codes in Kafka's answer that the title does not name."""
    text = json.dumps(answers.get(case.id))
    found = [each.name.upper() for each in ErrorCode if each and f'"{each.name.upper()}"' in text]
    missing = [name for name in found if name not in case.title]
    return f" → {', '.join(missing)}" if missing else ""


def differences(cases: list[Case]) -> str:
    rows = [f"| {case.area}: {case.title} | {case.differs} |\n" for case in cases if case.differs]
    return "| case | how Headrace differs, and why |\n|---|---|\n" + "".join(rows)


def written() -> str:
    """The whole page: what differs first, then every case."""
    cases = ordered_cases()
    answers = json.loads(ANSWERS.read_text())
    return f"{HEAD}## What differs\n\n{differences(cases)}\n## All cases\n{listed(cases, answers)}"


def ask_kafka() -> None:
    answers = {}
    for secured, opened in ((False, kafka_stage), (True, kafka_secured_stage)):
        with opened() as stage:
            answers |= {case.id: run(case, stage) for case in ordered_cases() if case.secured == secured}
    rows = [f"{json.dumps(case.id)}: {json.dumps(answers[case.id])}" for case in ordered_cases()]
    ANSWERS.write_text("{\n" + ",\n".join(rows) + "\n}\n")


def main() -> None:
    if "--answers" in sys.argv:
        ask_kafka()
    PAGE.write_text(written())


if __name__ == "__main__":
    main()
