"""Every case on ours, compared with what Kafka 4.3 answered; and on a live Kafka, which must still say so."""

import contextlib
import json

import pytest

from headrace.testing.kafka import PeerUnavailable
from parity.logs import kafka_secured_stage, kafka_stage, our_secured_stage, our_stage
from parity.page import PAGE, written
from parity.suite import ANSWERS, ordered_cases, run

CASES = ordered_cases()
KAFKA = json.loads(ANSWERS.read_text()) if ANSWERS.exists() else {}

pytestmark = pytest.mark.xdist_group("parity")
every_case = pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    """Our two logs by whether they ask who is there; each started when it is first needed."""
    data = tmp_path_factory.mktemp("parity")
    with Stages(
        {False: lambda: our_stage(data / "open"), True: lambda: our_secured_stage(data / "secured")}
    ) as found:
        yield found


@pytest.fixture(scope="module")
def kafka():
    with Stages({False: kafka_stage, True: kafka_secured_stage}) as found:
        try:
            found[False]
        except PeerUnavailable as reason:
            pytest.skip(str(reason))
        yield found


class Stages(contextlib.ExitStack):
    """Stages that are opened once, on first use."""

    def __init__(self, openers):
        super().__init__()
        self._openers, self._open = openers, {}

    def __getitem__(self, secured):
        if secured not in self._open:
            self._open[secured] = self.enter_context(self._openers[secured]())
        return self._open[secured]


@every_case
def test_ours_answers_as_kafka_did(ours, case):
    answer = run(case, ours[case.secured])
    if case.differs:
        assert answer != KAFKA[case.id], "it does not differ any more: take the reason out of the case"
    else:
        assert answer == KAFKA[case.id]


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(180)
@every_case
def test_kafka_still_answers_so(kafka, case):
    assert run(case, kafka[case.secured]) == KAFKA[case.id]


def test_the_list_is_long_and_kept_in_the_documentation():
    assert len(CASES) >= 60
    assert KAFKA.keys() == {case.id for case in CASES}, "run `python -m parity.page --answers`"
    assert PAGE.read_text() == written(), "run `python -m parity.page`"
