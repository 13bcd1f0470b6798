"""The records behind a row are those that it is made of, for windows, groups and joins alike, and back."""

import json
import random
from pathlib import Path

import pytest
from app_runs import BASE_MS, catch_up, new_topic, options, send

from headrace import App, agg, tumbling
from headrace.app.verify import RecordPlace, affected_rows, reason_of, shown_value
from headrace.app.verify.command import planned_app
from headrace.app.verify.trace import _traced_rows, _views
from headrace.cli.main import run
from headrace.client import LATEST, RawFetcher, producer
from headrace.client.topics import TopicSettings, ensure_topics
from headrace.errors import RequestError
from headrace.records import decode_columns
from headrace.streams.dataflow import RECORDS

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("applications")]

CUSTOMERS = ("ann", "bob", "cid")


def shop(orders, customers, store):
    """Views that collect the ids of what they are made of, by which the answers are judged."""
    app = App(f"app-{orders}", store=store)
    common = {"lateness": "1 second", "partitions": 2, "idle_after": "10 minutes"}
    bought = app.stream(orders, schema="id long, customer string, at long", event_time="at", **common)
    table = app.table(
        customers,
        key="customer",
        schema="customer string, region string, version long, since long",
        valid_from="since",
        **common,
    )
    placed = bought.join(table, on="customer")

    @app.view
    def per_window():
        return bought.window(tumbling("10 seconds"), by="customer").agg(n=agg.count(), ids=agg.collect("id"))

    @app.view(key="customer")
    def last():
        return bought.where("id % 2 = 0")

    @app.view
    def per_region():
        return placed.group_by("region").agg(
            ids=agg.collect("id", limit=1000), versions=agg.collect("version", limit=1000)
        )

    @app.view
    def regions_in_time():
        return placed.window(tumbling("10 seconds"), by="region").agg(
            ids=agg.collect("id"), versions=agg.collect("version")
        )

    @app.view(key=["customer", "region"])
    def pairs():
        return table.select("customer", "region", "version").distinct()

    return app


def put(log, orders, customers):
    chance = random.Random(7)
    client = producer(log)
    versions = 0
    for number in range(60):
        at = BASE_MS + number * 500 - chance.choice([0, 0, 0, 400, 9_000])
        order = {"id": number, "customer": chance.choice(CUSTOMERS), "at": at}
        client.produce(orders, json.dumps(order).encode(), partition=number % 2, timestamp=at)
        if number % 6 == 0:
            customer = CUSTOMERS[versions % 3]
            row = {
                "customer": customer,
                "region": chance.choice(["n", "s"]),
                "version": versions,
                "since": at - 5_000,
            }
            versions += 1
            client.produce(
                customers, json.dumps(row).encode(), key=customer.encode(), partition=0, timestamp=at
            )
    assert client.flush(60) == 0
    last = BASE_MS + 600_000
    for partition in range(2):
        send(log, orders, [{"id": 100 + partition, "customer": "ann", "at": last}], partition)
        row = {"customer": f"x{partition}", "region": "x", "version": -1, "since": last}
        value = json.dumps(row).encode()
        client.produce(customers, value, key=row["customer"], partition=partition, timestamp=last)
    assert client.flush(60) == 0


@pytest.fixture(scope="module")
def ran(spark, our_log, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trace")
    names = new_topic(), new_topic()
    app = shop(*names, f"sqlite:///{folder}/views.db")
    put_topics(our_log, names)
    put(our_log, *names)
    catch_up(app, our_log, folder / "data")
    return app, our_log, options(our_log, folder / "data"), names


def put_topics(log, names):
    ensure_topics(log, {name: TopicSettings(partitions=2) for name in names})


def values(log, names):
    """Every record's value, by its place."""
    with RawFetcher(log) as fetcher:
        return {
            f"{name}:{partition}:{each['offset']}": json.loads(each["value"])
            for name in names
            for partition, end in fetcher.offsets(name, LATEST).items()
            for part in fetcher.fetch(name, partition, 0, end)
            for each in decode_columns(part, start_offset=0).to_pylist()
        }


def test_every_row_has_the_records_that_it_was_made_of(ran):
    app, log, opened, (orders, customers) = ran
    known = values(log, (orders, customers))
    with planned_app(app, opened) as (spark, plan, connection, _):
        views = {each.name: each for each in _views(spark, plan, opened, connection)}
        found = {name: _traced_rows(each, each.served()) for name, each in views.items()}
    assert set(found) == {"per_window", "last", "per_region", "regions_in_time", "pairs"}
    for name, rows in found.items():
        assert rows, name
        for row in rows:
            behind = [known[each] | {"place": each} for each in row[RECORDS].split("\n")]
            ids = {each["id"] for each in behind if each["place"].startswith(orders)}
            versions = {each["version"] for each in behind if each["place"].startswith(customers)}
            if name == "last":
                assert (ids, versions) == ({row["id"]}, set())
            elif name == "pairs":
                found_of = {(each["customer"], each["region"]) for each in behind}
                assert found_of == {(row["customer"], row["region"])}
                assert row["version"] in versions
            else:
                assert ids == set(row["ids"]), (name, row)
                assert versions == set(row.get("versions", ())), (name, row)


def test_a_row_is_explained_and_a_record_leads_back_to_it(ran):
    app, log, opened, (orders, _) = ran
    reason = reason_of(app, opened, "per_region", [("region", "n")], limit=3)
    assert reason.count == len(set(reason.row["ids"])) + len(set(reason.row["versions"]))
    assert len(reason.records) == 3
    first = next(each for each in reason.records if each.record is not None)
    assert shown_value(first.record) == values(log, (first.place.topic,))[str(first.place)]
    rows = [(each.view, dict(each.key)) for each in affected_rows(app, opened, first.place)]
    assert ("per_region", {"region": "n"}) in rows
    with pytest.raises(RequestError, match="rows of per_window have customer=ann"):
        reason_of(app, opened, "per_window", [("customer", "ann")], limit=3)
    with pytest.raises(RequestError, match="no row with region=w"):
        reason_of(app, opened, "per_region", [("region", "w")], limit=3)
    with pytest.raises(RequestError, match="no view reads topic"):
        list(affected_rows(app, opened, RecordPlace("nowhere", 0, 0)))
    notes = []
    assert not list(affected_rows(app, opened, RecordPlace(orders, 0, 10_000), on_message=notes.append))
    assert "does not reflect" in notes[0]


def test_both_commands_answer_in_json_and_in_words(ran, tmp_path, capsys):
    app, log, opened, names = ran
    file = tmp_path / "shop.py"
    store = app.store
    file.write_text(
        "import sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from test_trace import shop\n"
        f"app = shop({names[0]!r}, {names[1]!r}, {store!r})\n"
    )
    place = ["--file", str(file), "--data", str(opened.data), "-b", log.bootstrap_servers]
    assert run(["why", "per_region", "region=n", *place, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["count"] == len(found["records"]) and found["row"]["region"] == "n"
    first = found["records"][0]
    assert first["value"] == values(log, names)[f"{first['topic']}:{first['partition']}:{first['offset']}"]
    record = [first["topic"], str(first["partition"]), str(first["offset"])]
    assert run(["affects", *record, *place]) == 0
    assert "region n" in capsys.readouterr().out
    assert run(["why", "per_region", "north", *place]) == 2
