"""A capture that is declared on a log and run beside the test, as `headrace capture run` does it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from tests.integration.capture.conftest import wait_until

from headrace.capture import CaptureHost, CaptureSpec, Catalog
from headrace.client import Connection
from headrace.derived import CaptureVerification, verify_capture


class Hosted:
    """What a test asks of the capture."""

    def __init__(self, bootstrap: str, spec: CaptureSpec, catalog: Catalog) -> None:
        self.spec, self.catalog = spec, catalog
        self._connection = Connection(bootstrap_servers=bootstrap)

    def state(self) -> str | None:
        status = self.catalog.refresh()[self.spec.name].status
        return status and status["state"]

    def verified(self, on_progress: Callable[[str], None] = lambda _: None, **options) -> CaptureVerification:
        return verify_capture(
            self.spec.name, self.catalog, self._connection, on_progress=on_progress, **options
        )


@contextmanager
def hosted(bootstrap: str, spec: CaptureSpec, patience_s: float = 60) -> Iterator[Hosted]:
    """The capture, once all its tables are read."""
    connection = Connection(bootstrap_servers=bootstrap)
    host = CaptureHost(connection, [spec.name])
    thread = threading.Thread(target=host.run, daemon=True)
    with closing(Catalog(connection)) as catalog:
        catalog.add(spec)
        thread.start()
        try:
            made = Hosted(bootstrap, spec, catalog)
            wait_until(lambda: made.state() == "streaming", patience_s)
            yield made
        finally:
            host.stop()
            thread.join(patience_s)
            assert not thread.is_alive()


def once(act: Callable[[], None], what: str = "rows read") -> Callable[[str], None]:
    """Acts the first time that this is said: when the rows were read, and before the topic is."""
    acted = []

    def heard(said: str) -> None:
        if what in said and not acted:
            acted.append(said)
            act()

    return heard


def kinds(found: CaptureVerification) -> dict[str, str]:
    """How rows differ, by key, of all tables."""
    return {each.identity.decode(): each.kind for table in found.tables for each in table.differences}
