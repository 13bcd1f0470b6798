"""The list of cases in docs/kafka.md: `python -m parity.page` writes it, the tests compare it.

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

__all__ = ["PAGE", "listed", "main"]

PAGE = Path(__file__).parents[3] / "docs" / "kafka.md"
BEGIN, END = "<!-- cases: begin -->\n", "<!-- cases: end -->\n"


def listed(cases: list[Case], answers: dict[str, Any]) -> str:
    """The cases as a list of areas, each with a number and Kafka's codes; those that differ are marked."""
    lines, area = [], None
    for number, case in enumerate(cases, 1):
        if case.area != area:
            area = case.area
            lines.append(f"\n**{area[0].upper()}{area[1:]}**\n\n")
        mark = " (differs)" if case.differs else ""
        lines.append(f"{number}. {case.title}{_codes(case, answers)}{mark}\n")
    return "".join(lines) + "\n"


def _codes(case: Case, answers: dict[str, Any]) -> str:
    """The codes in Kafka's answer that the title does not name."""
    text = json.dumps(answers.get(case.id))
    found = [each.name.upper() for each in ErrorCode if each and f'"{each.name.upper()}"' in text]
    missing = [name for name in found if name not in case.title]
    return f" → {', '.join(missing)}" if missing else ""


def differences(cases: list[Case]) -> str:
    rows = [f"| {case.area}: {case.title} | {case.differs} |\n" for case in cases if case.differs]
    return "| case | how ours differs, and why |\n|---|---|\n" + "".join(rows)


def written(text: str) -> str:
    """The page with its list and its table of differences made anew."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    cases = ordered_cases()
    answers = json.loads(ANSWERS.read_text())
    return f"{before}{BEGIN}\n{differences(cases)}{listed(cases, answers)}{END}{after}"


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
    PAGE.write_text(written(PAGE.read_text()))


if __name__ == "__main__":
    main()
