"""Views of the last row of each key through Spark: the same rows however batches are cut, and proved."""

import random

import pytest
from app_runs import BASE_MS, catch_up, new_topic, options, reflected, rows, send
from topics import create_topic

from headrace import App
from headrace.app.verify.command import verified

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

PARTITIONS, COUNT, KEYS = 3, 120, 7


def readings():
    """A device's readings come through any partition, and out of order."""
    chance = random.Random(20)
    found = []
    for number in range(COUNT):
        at = BASE_MS + number * 1000 - chance.choice((0, 0, 7000, 40_000))
        found.append((chance.randrange(PARTITIONS), {"device": f"d{number % KEYS}", "n": number, "at": at}))
    return found


def expected(sent):
    """The greatest reading of each device by event time, partition and offset; filtered as the view does."""
    offsets, last = [0] * PARTITIONS, {}
    for partition, value in sent:
        place = (value["at"], partition, offsets[partition])
        offsets[partition] += 1
        if value["n"] % 5 and place > last.get(value["device"], ((0, 0, 0), 0))[0]:
            last[value["device"]] = (place, value["n"])
    return {device: n for device, (_, n) in last.items()}


def keyed(topic, store):
    app = App(f"app-{new_topic()}", store=store)
    stream = app.stream(topic, schema="device string, n long, at long", event_time="at", lateness="1 second")
    app.view(key="device", name="latest")(lambda: stream.where("n % 5 <> 0").select("device", "n"))
    return app


def test_the_last_of_each_key_is_the_same_in_one_batch_and_in_many_and_verify_agrees(
    spark, our_log, tmp_path
):
    topic, sent = create_topic(our_log, PARTITIONS), readings()
    one, many = (f"sqlite:///{tmp_path}/{name}.db" for name in ("one", "many"))
    cut = keyed(topic, many)
    for half in (sent[: COUNT // 2], sent[COUNT // 2 :]):  # with a restart between
        for partition, value in half:
            send(our_log, topic, [value], partition)
        catch_up(cut, our_log, tmp_path / "many", max_records_per_batch=20)
    whole = keyed(topic, one)
    catch_up(whole, our_log, tmp_path / "one")
    for store in (one, many):
        assert {row["device"]: row["n"] for row in rows(store, "latest")} == expected(sent)
        assert reflected(store, "latest").counters["on_time"] == sum(1 for _, each in sent if each["n"] % 5)
    assert reflected(many, "latest").batch_id > reflected(one, "latest").batch_id + 2
    for app, data in ((whole, "one"), (cut, "many")):
        assert [each.is_equal for each in verified(app, options(our_log, tmp_path / data))] == [True]
