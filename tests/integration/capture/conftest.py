import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from headrace.capture import CaptureRun, CaptureWriter, Source
from headrace.client import Connection
from headrace.testing.broker import running_broker


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_broker(tmp_path_factory.mktemp("log")) as broker:
        yield f"127.0.0.1:{broker.port}"


@contextmanager
def running(
    bootstrap: str, name: str, open_source: Callable[[], Source], **settings: object
) -> Iterator[CaptureRun]:
    """A capture in a thread of its own, stopped at the end of the block."""
    writer = CaptureWriter(Connection(bootstrap_servers=bootstrap), name)
    with in_a_thread(CaptureRun(name, open_source, writer, **settings)) as run:
        yield run


@contextmanager
def in_a_thread(run: CaptureRun) -> Iterator[CaptureRun]:
    """The same of a run that is there already."""
    thread = threading.Thread(target=run.run, daemon=True)
    thread.start()
    try:
        yield run
    finally:
        run.stop()
        thread.join(30)
        assert not thread.is_alive()


def wait_until(holds: Callable[[], bool], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "it never came to hold"
        time.sleep(0.01)
