"""Through which derived topics a write gets to a view."""

from headrace.app.status.description import (
    AppDescription,
    QueryDescription,
    StoreDescription,
    ViewDescription,
)
from headrace.console.ask.pipeline.derivations import Derivations


def described(*queries, views=()):
    return AppDescription(
        app="shop",
        file=None,
        bootstrap="",
        streams=(),
        views=tuple(views),
        dead_topic="shop.dead",
        late_topic="shop.late",
        hooks=(),
        nodes=(),
        edges=(),
        queries=queries,
    )


def query(name, *reads, rows=(), asides=()):
    return QueryDescription(
        name=name, folder=name, reads={each: f"shop.{each}" for each in reads}, rows=rows, asides=asides
    )


def kept_on(topic, query_name):
    return ViewDescription(
        name="totals",
        doc="",
        kind="dataflow",
        window=None,
        key=("id",),
        columns={},
        query=query_name,
        stream=None,
        topic=topic,
        store=StoreDescription(url=f"topic://{topic}"),
    )


def stages(derivations, reads, *written):
    return [
        (each.topic, [maker.query.name for maker in each.makers])
        for each in derivations.stages(reads, written)
    ]


CHAIN = Derivations.of(described(query("a", "orders", rows=("large",)), query("b", "large", rows=("taxed",))))


def test_a_topic_that_is_written_to_itself_needs_no_stage():
    assert stages(CHAIN, ["orders"], "orders") == []
    assert stages(CHAIN, ["taxed"], "taxed") == []


def test_stages_come_in_the_order_of_their_makers():
    assert stages(CHAIN, ["taxed"], "orders") == [("large", ["a"]), ("taxed", ["b"])]


def test_a_write_in_the_middle_goes_through_what_is_behind_it_only():
    assert stages(CHAIN, ["taxed"], "large") == [("taxed", ["b"])]


def test_a_topic_that_is_read_directly_and_through_a_stage_is_waited_for_both_ways():
    assert stages(CHAIN, ["orders", "large"], "orders") == [("large", ["a"])]


def test_what_is_made_from_something_else_is_no_stage():
    other = Derivations.of(
        described(query("a", "orders", rows=("large",)), query("c", "clicks", rows=("pages",)))
    )
    assert stages(other, ["large", "pages"], "orders") == [("large", ["a"])]


def test_a_changelog_is_made_by_the_query_of_its_view():
    found = Derivations.of(
        described(query("view totals", "orders"), views=[kept_on("totals", "view totals")])
    )
    ((stage,)) = found.stages(["totals"], ["orders"])
    (maker,) = stage.makers
    assert maker.view is not None and maker.view.name == "totals" and not maker.is_of_rows


def test_letters_are_made_by_every_query_and_by_those_alone_that_a_write_gets_to():
    asides = ("shop.dead",)
    found = Derivations.of(
        described(query("a", "orders", asides=asides), query("b", "clicks", asides=asides))
    )
    assert stages(found, ["shop.dead"], "orders") == [("shop.dead", ["a"])]
    assert stages(found, ["shop.dead"], "orders", "clicks") == [("shop.dead", ["a", "b"])]


def test_a_query_that_reads_letters_and_writes_some_does_not_go_round():
    found = Derivations.of(described(query("a", "orders", "shop.dead", asides=("shop.dead",))))
    assert stages(found, ["shop.dead"], "orders") == [("shop.dead", ["a"])]


def test_the_description_of_an_older_version_has_no_stages():
    assert stages(Derivations.of(described()), ["large"], "orders") == []
