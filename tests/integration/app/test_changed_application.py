"""A changed application fits its checkpoint, needs a rebuild, or is refused; what is lost is built anew."""

import json
import shutil

import pytest
from app_runs import (
    BASE_MS,
    catch_up,
    counting,
    event,
    log_ends,
    new_topic,
    reflected,
    require_equal,
    rows,
    send,
    traffic,
)
from tests.integration.views.reading import read
from topics import create_topic

from headrace.checked_json import encode_fields
from headrace.errors import ConfigError

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("applications")]


@pytest.fixture
def topic(our_log):
    return new_topic()


def prepared(our_log, topic, store, data, **stream):
    """The application, run once to the end of a topic with two partitions."""
    app = counting(topic, store=store, **stream)
    create_topic(our_log, 2, topic)
    for partition in (0, 1):
        send(our_log, topic, traffic(partition), partition)
    catch_up(app, our_log, data)
    assert rows(store)
    return app


def manifest_of(data, topic):
    return data / "queries" / topic / "manifest.json"


def of_another_format(path, by):
    manifest = json.loads(path.read_text())
    del manifest["crc32c"]
    path.write_bytes(encode_fields({**manifest, "format": manifest["format"] + by}))


def test_what_becomes_of_a_checkpoint_when_the_application_changes(spark, our_log, topic, tmp_path):
    store, data = f"sqlite:///{tmp_path}/views.db", tmp_path / "data"
    prepared(our_log, topic, store, data, idle_after="1 hour")
    first = json.loads(manifest_of(data, topic).read_text())
    before = rows(store)

    # Fits: how long to wait for an idle partition is no part of the state.
    catch_up(counting(topic, store=store, idle_after="2 hours"), our_log, data)
    assert json.loads(manifest_of(data, topic).read_text())["query_id"] == first["query_id"]
    assert rows(store) == before

    # Needs a rebuild: refused with the reason, and nothing is touched.
    changed = counting(topic, store=store, window="5 seconds", idle_after="1 hour")
    with pytest.raises(ConfigError, match=r"(?s)view 'counts': window was .*10000000.* and is .*--rebuild"):
        catch_up(changed, our_log, data)
    assert json.loads(manifest_of(data, topic).read_text()) == first
    assert rows(store) == before
    catch_up(changed, our_log, data, rebuild=True)
    require_equal(spark, changed, our_log, store)
    assert len(rows(store)) > len(before)

    # Needs a rebuild as well: a checkpoint of a version that kept its state otherwise.
    of_another_format(manifest_of(data, topic), -1)
    with pytest.raises(ConfigError, match=r"(?s)kept by an older version \(format 2, now 3\).*--rebuild"):
        catch_up(changed, our_log, data)
    catch_up(changed, our_log, data, rebuild=True)
    require_equal(spark, changed, our_log, store)

    # Refused: a newer version's manifest, even where a rebuild was asked for.
    of_another_format(manifest_of(data, topic), +1)
    with pytest.raises(ConfigError, match="written by a newer version"):
        catch_up(changed, our_log, data, rebuild=True)


@pytest.mark.slow
def test_a_view_whose_checkpoint_or_store_is_lost_is_built_anew_from_the_log(spark, our_log, topic, tmp_path):
    store, data = f"sqlite:///{tmp_path}/views.db", tmp_path / "data"
    app = prepared(our_log, topic, store, data, idle_after="1 hour")
    before, shown = rows(store), reflected(store)

    shutil.rmtree(data / "queries" / topic / "checkpoint")
    catch_up(app, our_log, data)
    assert rows(store) == before
    assert reflected(store).counters == shown.counters and reflected(store).query_id != shown.query_id

    manifest_of(data, topic).unlink()  # as if a removal had been cut off in the middle
    catch_up(app, our_log, data)
    assert rows(store) == before

    (tmp_path / "views.db").unlink()
    with pytest.raises(ConfigError, match=r"shows batch -1 of its query.*--rebuild"):
        catch_up(app, our_log, data)
    catch_up(app, our_log, data, rebuild=True)
    assert rows(store) == before
    require_equal(spark, app, our_log, store)


def written(log, topic):
    """Source, partition, key and value, to the byte, of every committed record of a derived topic."""
    found = read(log, topic)
    return sorted(
        (each["headers"][0]["value"], each["partition"], each["key"], each["value"]) for each in found
    )


def test_where_batches_are_cut_and_a_rebuild_change_no_bit_of_the_result(spark, our_log, topic, tmp_path):
    stores = [f"sqlite:///{tmp_path}/{name}.db" for name in ("whole", "cut")]
    stream = {"idle_after": "1 hour", "late": "correct", "correct_for": "15 seconds"}
    app = prepared(our_log, topic, stores[0], tmp_path / "whole", copies=f"{topic}-whole", **stream)
    other = counting(topic, store=stores[1], copies=f"{topic}-cut", **stream)
    # Nearly every blob goes by a file here, and none over there.
    catch_up(other, our_log, tmp_path / "cut", max_records_per_batch=61, spill_bytes=64)
    assert [*(tmp_path / "cut").rglob("buckets")] and not [*(tmp_path / "cut").rglob("spill")]
    whole, cut = (reflected(store) for store in stores)
    assert cut.batch_id > whole.batch_id + 3
    assert repr(rows(stores[1])) == repr(rows(stores[0]))
    assert (cut.counters, cut.watermark_us, cut.offsets) == (
        whole.counters,
        whole.watermark_us,
        whole.offsets,
    )
    assert cut.counters["corrected"] and cut.counters["dropped"] and cut.counters["dead"]
    assert cut.offsets == {topic: log_ends(our_log, topic)}
    assert cut.watermark_us == (BASE_MS + 999_000) * 1000
    copies = written(our_log, f"{topic}-whole")
    assert len(copies) == sum(log_ends(our_log, topic).values()) - cut.counters["dead"]
    assert written(our_log, f"{topic}-cut") == copies
    before = repr(rows(stores[0]))
    catch_up(app, our_log, tmp_path / "whole", rebuild=True, max_bytes_per_batch=4_000)
    assert repr(rows(stores[0])) == before
    assert reflected(stores[0]).batch_id > whole.batch_id + 3
    assert written(our_log, f"{topic}-whole") == sorted(copies * 2)  # once for each build
    require_equal(spark, app, our_log, stores[0])


def test_an_older_copy_of_a_checkpoint_is_refused(spark, our_log, topic, tmp_path):
    """Its batches would be cut anew, and be taken for those that the store has."""
    log, store, data = our_log, f"sqlite:///{tmp_path}/views.db", tmp_path / "data"
    app = counting(topic, store=store, copies=f"{topic}-copies")
    create_topic(log, 2, topic)
    send(log, topic, [event(second) for second in range(30)])
    catch_up(app, log, data)
    copy, views = shutil.copytree(data, tmp_path / "copy"), (tmp_path / "views.db").read_bytes()
    send(log, topic, [event(second) for second in range(30, 60)])
    catch_up(app, log, data)
    send(log, topic, [event(second) for second in range(60, 90)])
    with pytest.raises(ConfigError, match=r"shows batch \d+ of its query.*it is an older copy.*--rebuild"):
        catch_up(app, log, copy)
    newest = (tmp_path / "views.db").read_bytes()
    (tmp_path / "views.db").write_bytes(views)  # as old as the copy: the derived topic still tells
    with pytest.raises(ConfigError, match=r"batch \d+ of a query is on the log.*it is an older copy"):
        catch_up(app, log, copy)
    (tmp_path / "views.db").write_bytes(newest)
    catch_up(app, log, data)
    require_equal(spark, app, log, store)
