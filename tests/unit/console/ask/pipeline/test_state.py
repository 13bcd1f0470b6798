"""The graph with what moves in it, and how fast counters grow."""

from headrace.app.status.description import (
    AppDescription,
    PipelineEdge,
    PipelineNode,
    StreamDescription,
    ViewDescription,
)
from headrace.app.status.status import AppStatus, QueryStatus, Rebuild
from headrace.console.ask.lag_history import GroupLag
from headrace.console.ask.pipeline.state import (
    AppSnapshot,
    CounterRates,
    graph_state,
    queries_state,
    rebuild_state,
)

VIEW = ViewDescription(
    name="v",
    doc="",
    kind="tumbling",
    window="1 minute",
    key=("k",),
    columns={"k": "string"},
    query="orders",
    stream="orders",
    topic=None,
    store=None,
)
STREAM = StreamDescription(
    topic="orders",
    schema="k string",
    decoder="json",
    event_time=None,
    lateness_us=0,
    late="drop",
    correct_for_us=0,
    group="shop.orders",
    words="",
)
NODES = [
    PipelineNode(id=f"{kind}:{name}", kind=kind, name=name, label=name)
    for kind, name in (
        ("topic", "orders"),
        ("query", "orders"),
        ("window", "v"),
        ("view", "v"),
        ("hook", "h"),
    )
]
APP = AppDescription(
    app="shop",
    file=None,
    bootstrap="",
    streams=(STREAM,),
    views=(VIEW,),
    dead_topic="shop.dead",
    late_topic="shop.late",
    hooks=(),
    nodes=tuple(NODES),
    edges=(PipelineEdge(tail="topic:orders", head="query:orders"),),
)
QUERY = QueryStatus(
    state="running", records=100, watermark_us=60_000_000, batch_seconds=0.5, recent=((95.0, 100),)
)
STATUS = AppStatus(pid=1, started_at=1.0, updated_at=99.0, queries={"orders": QUERY})


def lag(group: str, records: int) -> GroupLag:
    return GroupLag(
        group=group, state="Empty", type="classic", members=0, lag_records=records, lag_seconds=2.5
    )


def snapshot(*, running: bool = True, status: AppStatus | None = STATUS) -> AppSnapshot:
    return AppSnapshot(
        status=status,
        running=running,
        now=100.0,
        views={"v": {"watermark": "w", "freshness_s": 1.5, "lag_records": 7, "problem": None}},
        rates={"topic:orders": 12.0, "view:v": 3.0},
        lags={"shop.orders": lag("shop.orders", 9), "shop.hooks.h": lag("shop.hooks.h", 4)},
    )


def nodes(state: AppSnapshot) -> dict:
    return {each["id"]: each for each in graph_state(APP, state)["nodes"]}


def test_every_node_has_the_figures_that_make_sense_for_it():
    found = nodes(snapshot())
    assert found["topic:orders"]["records_per_s"] == 12.0
    query = found["query:orders"]
    assert (query["state"], query["records_per_s"], query["delay_s"], query["lag_records"]) == (
        "running",
        10.0,
        2.5,
        9,
    )
    assert query["watermark"] == "1970-01-01T00:01:00.000Z"
    assert found["window:v"]["watermark"] == query["watermark"]
    view = found["view:v"]
    assert (view["records_per_s"], view["delay_s"], view["lag_records"], view["state"]) == (
        3.0,
        1.5,
        7,
        "running",
    )
    assert found["hook:h"]["lag_records"] == 4
    assert found["topic:orders"]["state"] is None
    assert graph_state(APP, snapshot())["edges"] == [{"from": "topic:orders", "to": "query:orders"}]


def test_queries_of_a_driver_that_is_gone_have_stopped_whatever_it_said_last():
    assert nodes(snapshot(running=False))["query:orders"]["state"] == "stopped"
    assert queries_state(snapshot(running=False))[0]["records_per_s"] == 0.0
    failed = AppStatus(
        pid=1, started_at=1.0, updated_at=1.0, queries={"orders": QueryStatus(state="failed", error="why")}
    )
    (query,) = queries_state(snapshot(running=False, status=failed))
    assert (query["state"], query["error"]) == ("failed", "why")


def test_without_a_status_the_graph_is_still_there():
    found = nodes(snapshot(status=None))
    assert found["query:orders"]["state"] is None
    assert queries_state(snapshot(status=None)) == []
    assert rebuild_state(snapshot(status=None)) is None


def test_a_rebuild_has_its_progress():
    status = AppStatus(
        pid=1,
        started_at=1.0,
        updated_at=1.0,
        queries={"orders": QueryStatus(state="rebuilding", positions={"0": 25})},
        rebuild=Rebuild(began_at=5.0, targets={"orders": {"0": 100}}),
    )
    found = rebuild_state(snapshot(status=status))
    assert (found["began_at"], found["done_at"], found["progress"]) == (5.0, None, 0.25)


def test_a_rate_needs_two_looks_and_is_that_of_the_last_ten_seconds():
    rates = CounterRates()
    rates.add(0, {"a": 100})
    assert rates.of("a") is None
    rates.add(1_000, {"a": 300, "b": 5})
    assert rates.of("a") == 200.0
    assert rates.of("b") is None
    for second in range(2, 30):
        rates.add(1_000 * second, {"a": 300})
    assert rates.of("a") == 0.0


def test_a_counter_that_began_anew_has_no_negative_rate():
    rates = CounterRates()
    rates.add(0, {"a": 100})
    rates.add(1_000, {"a": 3})
    assert rates.of("a") == 0.0


def test_two_looks_at_one_moment_tell_nothing():
    rates = CounterRates()
    rates.add(5, {"a": 1})
    rates.add(5, {"a": 9})
    assert rates.of("a") is None
