"""What tests of hooks share: the way to the modules beside this file, a log, an environment with secrets."""

import sys
from pathlib import Path

import pytest

HERE = str(Path(__file__).parent)
if HERE not in sys.path:
    sys.path.insert(0, HERE)

from hook_lives import Log, new_secret  # noqa: E402
from receivers import Receiver  # noqa: E402

from headrace.testing.broker import BrokerProcess  # noqa: E402


@pytest.fixture(scope="session")
def hook_broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("hooks")) as broker:
        yield broker


@pytest.fixture
def log(hook_broker):
    """A broker, and names of its topics that no other test has."""
    return Log(hook_broker.bootstrap)


@pytest.fixture
def receiver(monkeypatch):
    secret = new_secret()
    monkeypatch.setenv("HOOK_SECRET", secret)
    with Receiver(secret) as one:
        yield one


@pytest.fixture(params=["ours", pytest.param("kafka", marks=pytest.mark.kafka)])
def any_log(request):
    """The same on ours and on a Kafka."""
    if request.param == "ours":
        return request.getfixturevalue("log")
    return Log(request.getfixturevalue("kafka_log").bootstrap_servers)
