"""No file of log, state, checkpoints, stores and letters has a personal value; a rebuild finds none."""

import contextlib
import json
import time
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.integration.sourcing.serving import entities_at, serving
from tests.unit.sourcing.customers import Register, Rename

from headrace.app import RunOptions, import_app, projection_starts
from headrace.app.run.runner import running
from headrace.client import EARLIEST, LATEST, Connection, RawFetcher, admin
from headrace.personal import forget, is_sealed, key_place, open_keys
from headrace.sourcing import clear_records, entity_group
from headrace.sourcing.topics import read_records
from headrace.testing.broker import BrokerProcess
from headrace.views import open_store

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.slow, pytest.mark.timeout(900)]

FILE = Path(__file__).with_name("personal_shop.py")
SECRETS = (b"Hildegard", b"Brunhild", b"194311", b"hilde@example.org", b"Ludwig", b"ludwig@example.org")
# What is not personal is in the clear in each kind of file, so the scan does see into it.
PUBLIC = b"Zebraland"
DEADLINE_S = 240


def files_with(folder, *texts):
    """The files below a folder that have any of these bytes; receipts name the subject on purpose."""
    found = set()
    for path in folder.rglob("*"):
        if path.is_file() and path.parent.name != "receipts":
            with contextlib.suppress(FileNotFoundError):  # a spill file that was read meanwhile
                data = path.read_bytes()
                found |= {str(path.relative_to(folder)) for text in texts if text in data}
    return sorted(found)


def every_record(log, topic):
    with RawFetcher(log) as fetcher:
        starts, ends = fetcher.offsets(topic, EARLIEST), fetcher.offsets(topic, LATEST)
        for partition, end in ends.items():
            yield from read_records(fetcher, topic, partition, starts[partition], end)


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """The application with keys of its own, and its log."""
    monkeypatch.setenv("HEADRACE_TEST_APP", f"s{uuid.uuid4().hex[:8]}")
    monkeypatch.setenv("HEADRACE_KEYS", str(tmp_path / "data" / "personal" / "keys.db"))
    app = import_app(FILE)
    with BrokerProcess(tmp_path / "log") as broker:
        yield Shop(app, Connection(bootstrap_servers=broker.bootstrap), tmp_path)


class Shop:
    """Commands, letters and runs of the application, all of whose files are below one folder."""

    def __init__(self, app, log, folder):
        self.app, self.log, self.folder, self.data = app, log, folder, folder / "data"
        self.keys = open_keys(key_place(self.data))

    def customers(self):
        start = projection_starts(self.app, self.data, compare=False, say=print)
        log, kinds = self.log.bootstrap_servers, self.app.entity_types
        entities = entities_at(log, kinds, self.app.name, find_keys=lambda: self.keys)
        with serving(log, kinds, self.app.name, find_keys=lambda: self.keys, projections=start):
            for name, entity in (("Hildegard", "c-1"), ("Ludwig", "c-2")):
                registered = Register(name, PUBLIC.decode(), 194311)
                assert entities.customer(entity).send_and_wait(registered).accepted
            for number in range(6):
                assert entities.customer("c-1").send_and_wait(Rename(f"Brunhild {number}")).accepted
            self.wait_rows("people", 2)
        entities.close()

    def wait_rows(self, view, count):
        deadline = time.monotonic() + DEADLINE_S
        while len(self.rows(view)) < count:
            assert time.monotonic() < deadline, view
            time.sleep(0.05)

    def letters(self):
        """On time, late, and not to be read."""
        sender = Producer({"bootstrap.servers": self.log.bootstrap_servers})
        for minute, (customer, email) in enumerate(
            [("c-1", "hilde@example.org"), ("c-2", "ludwig@example.org")] * 3
        ):
            late = "2026-01-05T08:00:00Z" if minute > 3 else f"2026-01-05T09:{10 * minute:02}:00Z"
            sealed = self.app.personal.seal(customer, email)
            letter = {"customer": customer, "email": sealed, "country": PUBLIC.decode(), "at": late}
            sender.produce(f"{self.app.name}.letters", json.dumps(letter), customer)
            sender.produce(f"{self.app.name}.letters", json.dumps({**letter, "at": "never"}), customer)
            assert sender.flush(30) == 0

    def catch_up(self, spark, **fields):
        options = RunOptions(
            data=self.data,
            bootstrap=self.log.bootstrap_servers,
            file=FILE,
            until_caught_up=True,
            spill_bytes=1,
            **fields,
        )
        with running(self.app, options, spark=spark) as started:
            started.wait()

    def rows(self, view):
        name = "projections.db" if view in self.app.projections else "views.db"
        with contextlib.closing(open_store(f"sqlite:///{self.data / name}")) as store:
            return store.read(view).to_pylist() if view in store.views() else []

    def opened(self, view, subject):
        """What the sealed values of a subject in a view are for somebody with the keys."""
        found = [row for row in self.rows(view) if subject in (row.get("customer"), row.get("entity"))]
        values = [value for row in found for value in row.values() if is_sealed(value)]
        return {self.keys.open(value) for value in values}

    def topics_with(self, *texts):
        """The topics that have any of these bytes: their batches may be compressed in the files."""
        names = admin(self.log).list_topics(timeout=30).topics
        return sorted(
            name
            for name in names
            if any(text in (each.value or b"") for each in every_record(self.log, name) for text in texts)
        )

    def require_nothing_in_clear(self):
        assert files_with(self.folder, *SECRETS) == []
        assert self.topics_with(*SECRETS) == []

    def forget(self, subject):
        described = [each.describe() for each in self.app.entity_types.values()]
        name = self.app.name
        path = forget(
            self.keys,
            subject,
            at_ms=1,
            clear=lambda who: clear_records(self.log, name, described, entity_group(name), who),
        )
        return json.loads(path.read_bytes())


VIEWS = {
    "names": "Hildegard",
    "people": "Brunhild 5",
    "letters_per_minute": "hilde@example.org",
    "letters_with_names": "hilde@example.org",
}


def test_a_forgotten_subject_is_in_no_file_and_a_rebuild_does_not_bring_it_back(shop, spark):
    shop.customers()
    shop.catch_up(spark)
    shop.letters()
    shop.catch_up(spark)
    for view, value in VIEWS.items():
        assert value in shop.opened(view, "c-1"), view
    seen = files_with(shop.folder, PUBLIC)
    for place in ("log/", "checkpoint/buckets/", "checkpoint/stages/", "views.db", "projections.db"):
        assert any(place in each for each in seen), (place, seen)
    seen = shop.topics_with(PUBLIC)
    for topic in ("customer.commands", "customer.events", "letters", "dead", "late"):
        assert f"{shop.app.name}.{topic}" in seen, (topic, seen)
    shop.require_nothing_in_clear()
    receipt = shop.forget("c-1")
    assert receipt["left"] == []
    for view in VIEWS:
        assert shop.opened(view, "c-1") == {None}, view
        assert None not in shop.opened(view, "c-2") and shop.opened(view, "c-2"), view
    shop.catch_up(spark, rebuild=True)
    for view in VIEWS:
        assert shop.opened(view, "c-1") == {None}, view
        assert None not in shop.opened(view, "c-2") and shop.opened(view, "c-2"), view
    shop.require_nothing_in_clear()
