"""The graph with what moves in it."""

from headrace.app.description import AppDescription, Edge, Node, StreamDescription, ViewDescription
from headrace.app.status import AppStatus, QueryStatus, Rebuild
from headrace.console.lag_history import GroupLag
from headrace.console.pipeline_state import Moving, graph_state, queries_state, rebuild_state

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
    Node(id=f"{kind}:{name}", kind=kind, name=name, label=name)
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
    edges=(Edge(tail="topic:orders", head="query:orders"),),
)
QUERY = QueryStatus(
    state="running", records=100, watermark_us=60_000_000, batch_seconds=0.5, recent=((95.0, 100),)
)
STATUS = AppStatus(pid=1, started_at=1.0, updated_at=99.0, queries={"orders": QUERY})


def lag(group: str, records: int) -> GroupLag:
    return GroupLag(
        group=group, state="Empty", type="classic", members=0, lag_records=records, lag_seconds=2.5
    )


def moving(*, running: bool = True, status: AppStatus | None = STATUS) -> Moving:
    return Moving(
        status=status,
        running=running,
        now=100.0,
        views={"v": {"watermark": "w", "freshness_s": 1.5, "lag_records": 7, "problem": None}},
        rates={"topic:orders": 12.0, "view:v": 3.0},
        lags={"shop.orders": lag("shop.orders", 9), "shop.hooks.h": lag("shop.hooks.h", 4)},
    )


def nodes(state: Moving) -> dict:
    return {each["id"]: each for each in graph_state(APP, state)["nodes"]}


def test_every_node_has_the_figures_that_make_sense_for_it():
    found = nodes(moving())
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
    assert graph_state(APP, moving())["edges"] == [{"from": "topic:orders", "to": "query:orders"}]


def test_queries_of_a_driver_that_is_gone_have_stopped_whatever_it_said_last():
    assert nodes(moving(running=False))["query:orders"]["state"] == "stopped"
    assert queries_state(moving(running=False))[0]["records_per_s"] == 0.0
    failed = AppStatus(
        pid=1, started_at=1.0, updated_at=1.0, queries={"orders": QueryStatus(state="failed", error="why")}
    )
    (query,) = queries_state(moving(running=False, status=failed))
    assert (query["state"], query["error"]) == ("failed", "why")


def test_without_a_status_the_graph_is_still_there():
    found = nodes(moving(status=None))
    assert found["query:orders"]["state"] is None
    assert queries_state(moving(status=None)) == []
    assert rebuild_state(moving(status=None)) is None


def test_a_rebuild_has_its_progress():
    status = AppStatus(
        pid=1,
        started_at=1.0,
        updated_at=1.0,
        queries={"orders": QueryStatus(state="rebuilding", positions={"0": 25})},
        rebuild=Rebuild(began_at=5.0, targets={"orders": {"0": 100}}),
    )
    found = rebuild_state(moving(status=status))
    assert (found["began_at"], found["done_at"], found["progress"]) == (5.0, None, 0.25)
