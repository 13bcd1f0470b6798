"""Entities that an earlier version served, served by this one."""

import json
from pathlib import Path

import pytest
from tests.integration.upgrade.earlier import WITH_CAPTURES, run_file, run_now, started

from headrace.testing.broker import BrokerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600), pytest.mark.xdist_group("upgrade")]

HERE = Path(__file__).parent
ACCOUNTS = str(HERE / "accounts.py")
SENDER = HERE / "change_accounts.py"


def test_entities_go_on_with_the_states_and_answers_of_an_earlier_version(earlier, tmp_path):
    version = earlier(WITH_CAPTURES)
    with BrokerProcess(tmp_path / "data") as broker:
        log = broker.bootstrap
        with version.chosen():
            with started("serve", ACCOUNTS, "-b", log):
                answers = json.loads(run_file(SENDER, log, "0", "150"))
            before = _histories(version.run, log)
        assert {outcome for outcome, _, _ in answers} == {"accepted", "rejected"}
        assert sum(len(each) for each in before.values()) == sum(each[0] == "accepted" for each in answers)
        with started("serve", ACCOUNTS, "-b", log):
            assert _histories(run_now, log) == before
            again = json.loads(run_file(SENDER, log, "100", "152"))
        assert again[:50] == [[outcome, number, True] for outcome, number, _ in answers[100:]]
        assert again[50:] == [["accepted", len(before[f"a-{n % 3}"]) + 1, False] for n in (150, 151)]
        after = _histories(run_now, log)
        assert all(after[name][: len(events)] == events for name, events in before.items())
        assert sum(map(len, after.values())) == sum(map(len, before.values())) + 2


def _histories(run, log):
    """The events of each account, with the state after each."""
    found = {}
    for number in range(3):
        said = run("entity", "history", ACCOUNTS, "account", f"a-{number}", "--states", "--json", "-b", log)
        found[f"a-{number}"] = json.loads(said)["events"]
    return found
