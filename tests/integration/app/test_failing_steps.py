"""Steps that raise for some records, on a real Spark: the rows go aside, and the application goes on."""

import json

import pytest
from app_runs import BASE_MS, catch_up, headers_of, new_topic, options, read, reflected, rows, send
from pyspark.sql import functions as F  # noqa: N812
from topics import create_topic

from headrace import App, agg, tumbling
from headrace.app.verify.command import verified
from headrace.cli.main import run
from headrace.client import producer
from headrace.streams.engine.raising import may_raise

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("applications")]

PARTITIONS, COUNT = 2, 60
BAD_CAST = "12 apples"
LARGEST = 2**63 - 1


def value(number):
    """Every fifth has a divisor of 0, every seventh no number, every eleventh one that overflows."""
    return {
        "place": f"p{number % 3}",
        "a": LARGEST if number % 11 == 0 else number,
        "b": 0 if number % 5 == 0 else 2,
        "text": BAD_CAST if number % 7 == 0 else str(number),
        "at": BASE_MS + number * 1000,
    }


def application(topic, store):
    app = App(f"app-{new_topic()}", store=store)
    events = app.stream(
        topic,
        schema="place string, a long, b long, text string, at long",
        event_time="at",
        lateness="1 second",
        partitions=PARTITIONS,
    )
    parsed = events.where("place <> 'p0'").with_columns(number=F.col("text").cast("int"))
    app.view(name="sums")(
        lambda: parsed.window(tumbling("10 seconds"), by="place", emit="update").agg(
            n=agg.count(), total=agg.sum("number")
        )
    )
    app.view(name="halves")(lambda: events.where("a / b > 0").select("place", "a", "b"))
    app.view(name="latest", key="place")(lambda: events.with_columns(more="a + 1"))
    app.topic(f"{app.name}-third", key="place")(
        lambda: events.select("place", F.expr("array('x', 'y')[b]").alias("c"))
    )
    app.view(name="all_of_them")(lambda: events)
    return app


def fails(number, view):
    own = value(number)
    return {
        "sums": own["place"] != "p0" and own["text"] == BAD_CAST,
        "halves": own["b"] == 0,
        "latest": own["a"] == LARGEST,
        "third": own["b"] == 2,
        "all_of_them": False,
    }[view]


def test_rows_for_which_a_step_raises_go_aside_and_everything_else_counts(spark, our_log, tmp_path, capsys):
    topic, store = create_topic(our_log, PARTITIONS), f"sqlite:///{tmp_path}/views.db"
    app = application(topic, store)
    for numbers in (range(COUNT // 2), range(COUNT // 2, COUNT)):
        for partition in range(PARTITIONS):
            own = [value(number) for number in numbers if number % PARTITIONS == partition]
            send(our_log, topic, own, partition)
        catch_up(app, our_log, tmp_path / "data", max_records_per_batch=20)
    names = {"sums": "sums", "halves": "halves", "latest": "latest", "all_of_them": "all_of_them"}
    for view in names:
        counters = {name: count for name, count in reflected(store, view).counters.items() if count}
        assert counters.get("dead", 0) == sum(fails(number, view) for number in range(COUNT)), view
        assert sum(counters.values()) == COUNT
    counted = [number for number in range(COUNT) if number % 3 and not fails(number, "sums")]
    assert sum(row["n"] for row in rows(store, "sums")) == len(counted)
    assert sum(row["total"] for row in rows(store, "sums")) == sum(counted)
    assert len(rows(store, "halves")) == sum(not fails(number, "halves") for number in range(1, COUNT))
    made = [json.loads(each["value"])["c"] for each in read(our_log, f"{app.name}-third")]
    assert made == ["x"] * (COUNT // 5)  # the others have an index beyond the array

    letters = [(headers_of(each), json.loads(each["value"])) for each in read(our_log, f"{app.name}.dead")]
    told = sorted(
        (
            headers["headrace.dead.view"].decode().removeprefix(f"{app.name}-"),
            int(headers["headrace.dead.offset"]) * PARTITIONS + int(headers["headrace.dead.partition"]),
        )
        for headers, _ in letters
    )
    failing = [(view, number) for view in (*names, "third") for number in range(COUNT) if fails(number, view)]
    assert told == sorted(failing)
    for headers, row in letters:
        number = int(headers["headrace.dead.offset"]) * PARTITIONS + int(headers["headrace.dead.partition"])
        assert row == value(number)
        assert headers["headrace.dead.topic"].decode() == topic
    reasons = {
        headers["headrace.dead.view"]: headers["headrace.dead.reason"].decode() for headers, _ in letters
    }
    assert reasons[b"halves"].startswith("where a / b > 0: cannot be computed for this record")
    assert reasons[b"latest"].startswith("with more=a + 1: cannot be computed for this record")

    verdicts = {each.view: each for each in verified(app, options(our_log, tmp_path / "data"))}
    assert {name: each.is_equal for name, each in verdicts.items()} == dict.fromkeys(names, True)

    # The other views have counted these records: sent again they would count twice.
    capsys.readouterr()
    assert run(["deadletters", "redrive", f"{app.name}.dead", "--bootstrap", our_log.bootstrap_servers]) == 0
    assert sum(1 for _ in read(our_log, topic)) == COUNT


def test_rows_of_tables_and_joins_for_which_a_step_raises_go_aside_too(spark, our_log, tmp_path):
    """A row that is changed comes back once its step no longer raises, and goes when it does again."""
    orders, people, store = new_topic(), new_topic(), f"sqlite:///{tmp_path}/views.db"
    app = App(f"app-{orders}", store=store)
    bought = app.table(orders, key="id", schema="id long, person long, total long, items long")
    known = app.table(people, key="person", schema="person long, age string")
    priced = bought.with_columns(each="total div items")
    app.view(name="priced")(lambda: priced)
    joined = priced.join(known, on="person")
    aged = joined.with_columns(years="cast(age as int)").where("each / (3 - items) > 0")
    app.view(name="aged")(lambda: aged)

    def put(topic, key, *given):
        client = producer(our_log)
        for row in given:
            client.produce(topic, json.dumps(row).encode(), key=json.dumps({key: row[key]}).encode())
        assert client.flush(60) == 0

    put(people, "person", {"person": 1, "age": "33"}, {"person": 2, "age": "unknown"})
    put(orders, "id", *({"id": n, "person": 1 + n % 2, "total": 10 * n, "items": n % 4} for n in range(12)))
    catch_up(app, our_log, tmp_path / "data")
    assert {row["id"] for row in rows(store, "priced")} == {n for n in range(12) if n % 4}
    assert {row["id"] for row in rows(store, "aged")} == {n for n in range(12) if n % 4 == 2}
    changed = {"id": 0, "person": 1, "total": 8, "items": 2}
    put(orders, "id", changed, {**changed, "id": 2, "items": 0})
    put(people, "person", {"person": 2, "age": "44"})
    catch_up(app, our_log, tmp_path / "data")
    assert {row["id"] for row in rows(store, "priced")} == {0} | {n for n in range(12) if n % 4} - {2}
    assert {row["id"] for row in rows(store, "aged")} == {0, 6, 10} | {1, 5, 9}
    verdicts = list(verified(app, options(our_log, tmp_path / "data")))
    assert [each.is_equal for each in verdicts] == [True, True], verdicts
    letters = [headers_of(each) for each in read(our_log, f"{app.name}.dead")]
    reasons = {(each["headrace.dead.view"], each["headrace.dead.reason"].split(b":")[0]) for each in letters}
    assert (b"priced", b"with each=total div items") in reasons
    assert (b"aged", b"with years=cast(age as int)") in reasons


SAFE = """
    t = 'a' | upper(t) | t in ('a', 'b') | concat(t, 'x') | startswith(t, 'a') | length(t) > 3 |
    d * 0.19 + 1 | d / 7 | -d | abs(d) | d - l | f + d | cast(l as double) | l / 2 | i % 5 <> 0 | l % -1 |
    i % cast(3 as bigint) | l > 3 and not b | l = i | cast(i as bigint) | cast(l as string) |
    cast(d as string) | st.x | case when b then d else -d end | if(b, l, i) | coalesce(d, 0) | nanvl(d, f) |
    isnan(d) | day > date'2026-01-01' | cast(day as timestamp) | at > timestamp'2026-01-01' | m is null |
    cast(m as double) | named_struct('x', l, 'y', d) | l <=> i
"""
RAISING = """
    i + 1 | l * 2 | i / l | d / 0 | d / 0.00 | d / d | i % 0 | i % l | cast(t as int) | arr[i] | m * m |
    cast(l as int) | cast(d as int) | -i | abs(l) | cast(t as timestamp) | i div -1 | raise_error('x') |
    element_at(arr, 5) | cast(t as boolean) | i = t | length(t) + 1 | case when b then i + 1 end |
    upper(cast(cast(t as int) as string)) | l / null | cast(at as int) | to_date(t) | make_date(i, i, i)
"""
EXTREMES = """
    select * from values
      ('', -2147483648, -9223372036854775808L, double('-Infinity'), float('NaN'),
       cast(-999.99 as decimal(5,2)), array(1), named_struct('x', 1), date'0001-01-01', true,
       timestamp'0001-01-01'),
      ('a', 2147483647, 9223372036854775807L, 1.7976931348623157e308D, float(3.4e38),
       cast(999.99 as decimal(5,2)), array(1), named_struct('x', 2), date'9999-12-31', false,
       timestamp'9999-12-31 23:59:59.999999'),
      ('12 apples', 0, 0L, -0.0D, float(0),
       cast(0 as decimal(5,2)), array(), null, date'1970-01-01', null,
       timestamp'1970-01-01'),
      (null, null, null, null, null, null, null, null, null, null, null)
    as v(t, i, l, d, f, m, arr, st, day, b, at)
"""


def several(text):
    return [each.strip() for each in text.split("|")]


def test_what_is_not_tried_cannot_raise_even_for_extreme_values(spark):
    extremes = spark.sql(EXTREMES)
    assert [each for each in several(SAFE) if may_raise(extremes, [F.expr(each)])] == []
    columns = [F.expr(each).alias(f"c{number}") for number, each in enumerate(several(SAFE))]
    for frame in (extremes, extremes.repartition(1)):  # by Spark's interpreter, and compiled
        assert frame.select(*columns).toArrow().num_rows == 4


def test_what_may_raise_is_tried(spark):
    extremes = spark.sql(EXTREMES)
    assert [each for each in several(RAISING) if not may_raise(extremes, [F.expr(each)])] == []
