"""Everything at once, and everything disturbed: zero violations of the named invariants.

Idempotent and transactional producers of both protocols, consume-transform-produce,
readers of both isolation levels and two groups, each a process that writes its history,
while the broker is killed and paused, clients are killed, and producers are succeeded while they
live. `HEADRACE_CRASH_SEED` repeats the disturbances; how requests fall between them is the
machine's. `HEADRACE_KEEP_HISTORIES` names a folder in which the histories are kept.
"""

import os
import random
import shutil
from pathlib import Path

import pytest
from recorded.campaign import Campaign
from recorded.history import History, Outcome
from recorded.invariants import violations

from headrace.testing.broker import BrokerProcess

pytestmark = pytest.mark.xdist_group("crash")


def run(tmp_path: Path, *, disturbances: int, transactions: int) -> None:
    seed = int(os.environ.get("HEADRACE_CRASH_SEED", random.SystemRandom().randrange(2**31)))
    print(f"HEADRACE_CRASH_SEED={seed}")
    with BrokerProcess(tmp_path / "data", group_consumer_session_timeout_ms=6000) as broker:
        campaign = Campaign(broker, tmp_path / "histories", seed)
        try:
            campaign.start()
            for _ in range(disturbances):
                campaign.disturb(transactions=transactions // disturbances + 1)
            history = campaign.finish()
        finally:
            campaign.stop()
            keep(tmp_path)
        output = broker.output()
    print(told(campaign, history))
    assert campaign.transactions >= transactions
    broken = violations(history)
    assert not broken, "\n".join([*broken, f"repeat with HEADRACE_CRASH_SEED={seed}"])
    assert "Traceback" not in output, output[-4000:]


def keep(tmp_path: Path) -> None:
    if folder := os.environ.get("HEADRACE_KEEP_HISTORIES"):
        shutil.copytree(tmp_path, folder, dirs_exist_ok=True)


def told(campaign: Campaign, history: History) -> str:
    outcomes = [each.outcome for each in history.transactions.values()]
    counted = ", ".join(f"{name} {count}" for name, count in sorted(campaign.counts.items()))
    return (
        f"{len(outcomes)} transactions ({outcomes.count(Outcome.COMMITTED)} committed,"
        f" {outcomes.count(Outcome.UNKNOWN)} unknown), {len(history.writes)} records,"
        f" {sum(len(run.seen) for run in history.runs)} polled, {len(history.inits)} instances,"
        f" {sum(bool(each.fenced) for each in history.inits.values())} fenced; {counted}"
    )


@pytest.mark.timeout(900)
def test_a_hundred_transactions_under_disturbance_violate_nothing(tmp_path: Path):
    run(tmp_path, disturbances=16, transactions=100)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_two_thousand_transactions_under_disturbance_violate_nothing(tmp_path: Path):
    run(tmp_path, disturbances=160, transactions=2_000)
