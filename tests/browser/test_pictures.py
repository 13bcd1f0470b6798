"""What the page decides before it draws: charts, layout, forms. Its own modules, called in the browser."""

import json

import pytest

TIME = "timestamp[us, tz=UTC]"


def view(kind: str, key: list[str], **columns: str) -> str:
    """A view as the server describes it, in JSON."""
    named = {"window_start": TIME, "window_end": TIME, **columns}
    listed = [{"name": name, "type": type_} for name, type_ in named.items()]
    return json.dumps({"kind": kind, "key": key, "columns": listed})


@pytest.fixture(scope="module")
def run(chromium, console):
    """Calls an expression with a module of the page as `m`."""
    page = chromium.new_page()
    page.goto(f"{console.url}/#/audit")

    def run_(module: str, expression: str):
        return page.evaluate(
            f"async () => {{ const m = await import('/static/js/{module}'); return {expression}; }}"
        )

    yield run_
    page.close()


def test_windows_are_columns_and_rolling_ones_rankings(run):
    tumbling = view("tumbling", ["window_start", "region"], region="string", revenue="double")
    assert run("charting.js", f"m.chartOf({tumbling})") == {
        "measures": ["revenue"],
        "time": "window_start",
        "names": ["region"],
        "shape": "columns",
    }
    place = {"_partition": "int32", "_offset": "int64"}
    sliding = view("sliding", list(place), card="string", failures="int64", **place)
    found = run("charting.js", f"m.chartOf({sliding})")
    assert (found["shape"], found["names"], found["measures"]) == ("ranking", ["card"], ["failures"])


def test_many_series_are_the_largest_and_the_others_summed(run):
    rows = "Array.from({ length: 12 }, (_, n) => ({ t: '2026-01-01T00:00:00Z', name: `n${n}`, v: n }))"
    found = run("charting.js", f"m.overTime({rows}, {{ time: 't', names: ['name'] }}, 'v')")
    assert [each["name"] for each in found["series"]] == [*(f"n{n}" for n in range(5, 12)), "5 others"]
    assert found["series"][-1]["values"] == [0 + 1 + 2 + 3 + 4]


def test_a_ranking_is_of_the_newest_window_and_decimals_count(run):
    early, newest = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"
    listed = [(early, "old", 9), (newest, "tea", "2.50"), (newest, "mate", "11.00")]
    rows = json.dumps([{"t": at, "p": product, "v": value} for at, product, value in listed])
    found = run(
        "charting.js", f"m.ranking({rows}, {{ time: 't', names: ['p'] }}, 'v', {{ kind: 'hopping' }})"
    )
    assert found["bars"] == [{"name": "mate", "value": 11}, {"name": "tea", "value": 2.5}]


def test_a_ranking_of_windows_that_overlap_is_of_the_one_that_has_seen_most(run):
    minutes = [f"2026-01-01T00:{minute:02}:00Z" for minute in range(20)]
    listed = [(minutes[n], minutes[n + 10], f"from {n}") for n in range(9)]
    rows = json.dumps([{"t": start, "window_end": end, "p": name, "v": 1} for start, end, name in listed])
    for now, wanted in (("00:12:30", "from 3"), ("00:30:00", "from 8")):
        found = run(
            "charting.js",
            f"m.ranking({rows}, {{ time: 't', names: ['p'] }}, 'v', "
            f"{{ kind: 'hopping', now: Date.parse('2026-01-01T{now}Z') }})",
        )
        assert [each["name"] for each in found["bars"]] == [wanted]


@pytest.mark.parametrize("most", [0.0003, 1, 7, 42, 999, 1_000_000])
def test_an_axis_has_round_numbers_that_reach_over_its_values(run, most):
    ticks = run("charting.js", f"m.ticks(0, {most})")
    assert ticks[0] == 0 and ticks[-1] >= most and 2 <= len(ticks) <= 7
    assert ticks == sorted(set(ticks))


def test_a_graph_is_laid_out_from_left_to_right_without_overlap(run):
    nodes = [f"t{n}" for n in range(3)] + [f"q{n}" for n in range(3)] + [f"v{n}" for n in range(7)] + ["dead"]
    edges = [(f"t{n}", f"q{n}") for n in range(3)] + [(f"q{n % 3}", f"v{n}") for n in range(7)]
    edges += [(f"q{n}", "dead") for n in range(3)] + [("v0", "t0")]  # and a circle
    placed = run(
        "parts/layout.js",
        f"""(() => {{
            const nodes = {nodes}.map((id) => ({{ id, last: id === "dead" }}));
            const edges = {[list(each) for each in edges]}.map(([from, to]) => ({{ from, to }}));
            const found = m.layout(nodes, edges, {{ boxWidth: 100, boxHeight: 40, gapX: 20, gapY: 10 }});
            return {{ ...found, nodes: Object.fromEntries(found.nodes) }};
        }})()""",
    )
    boxes = placed["nodes"]
    assert set(boxes) == set(nodes)
    for one in nodes:
        assert 0 <= boxes[one]["y"] <= placed["height"] - 40 and boxes[one]["x"] <= placed["width"] - 100
        for other in nodes:
            if one < other and boxes[one]["x"] == boxes[other]["x"]:
                assert abs(boxes[one]["y"] - boxes[other]["y"]) >= 50, (one, other)
    for tail, head in edges[:-1]:
        assert boxes[tail]["x"] < boxes[head]["x"]
    below = [boxes[each]["y"] for each in nodes if boxes[each]["x"] == boxes["dead"]["x"]]
    assert boxes["dead"]["y"] == max(below)


def test_steps_without_a_fork_are_drawn_as_one(run):
    found = run(
        "graph.js",
        """m.graphOf({
            nodes: [{ id: "q", kind: "query", name: "q" }, { id: "a", kind: "step", label: "where ok" },
                    { id: "b", kind: "window", label: "tumbling" }, { id: "v", kind: "view", name: "v" }],
            edges: [{ from: "q", to: "a" }, { from: "a", to: "b" }, { from: "b", to: "v" }],
        })""",
    )
    assert [each["id"] for each in found["nodes"]] == ["q", "a", "v"]
    assert found["edges"] == [{"from": "q", "to": "a"}, {"from": "a", "to": "v"}]
    assert found["nodes"][1]["title"] == "where ok" and found["nodes"][1]["sample"] == "b"


def test_a_form_comes_from_a_schema_and_from_records_seen(run):
    schema = (
        "order_id string, region string NOT NULL, tags array<struct<a:int,b:string>>, "
        "amount decimal(10,2), ok boolean, placed_at timestamp"
    )
    fields = run("model.js", f"m.fieldsOf('{schema}')")
    assert [each["name"] for each in fields] == ["order_id", "region", "tags", "amount", "ok", "placed_at"]
    assert fields[2]["type"] == "array<struct<a:int,b:string>>" and fields[1]["type"] == "string"
    seen = json.dumps({"order_id": "o-1", "region": "north", "amount": 7})
    made = run("model.js", f"m.templateOf(m.fieldsOf('{schema}'), {seen}, new Date(0))")
    assert made["region"] == "north" and made["amount"] == 7 and made["tags"] == [] and made["ok"] is True
    assert made["order_id"] != "o-1" and made["placed_at"] == "1970-01-01T00:00:00.000Z"


@pytest.mark.parametrize(
    ("topic", "words"),
    [
        ("shop.orders", "Place an order"),
        ("shop.searches", "Send a search"),
        ("shop.entries", "Send an entry"),
        ("x.42", "Send a record"),
    ],
)
def test_the_button_is_called_by_what_the_topic_holds(run, topic, words):
    assert run("model.js", f"m.sendingOf('{topic}')") == words


def test_a_tail_keeps_the_newest_within_its_bound_also_while_held(run):
    found = run(
        "tail.js",
        """(() => {
            const tail = new m.Tail(5);
            tail.add([1, 2, 3].map((offset) => ({ offset })));
            tail.hold();
            tail.add([4, 5, 6, 7, 8, 9, 10].map((offset) => ({ offset })));
            const held = tail.records.map((each) => each.offset);
            tail.release();
            return [held, tail.records.map((each) => each.offset), tail.passed];
        })()""",
    )
    assert found == [[3, 2, 1], [10, 9, 8, 7, 6], 2]
