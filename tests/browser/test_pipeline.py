"""The Pipeline panel: the graph, what passes each node, and rows of the one that is chosen."""

from playwright.sync_api import expect
from tests.browser.shop import ORDERS, REVENUE, closed, minute, revenue


def test_the_graph_shows_every_node_and_a_click_gives_rows(shop, open_page):
    shop.apply(REVENUE, [closed(revenue(minute(5), "graphland", 31.0))], watermark=minute(4))
    shop.send(ORDERS, {"order_id": "o-graph", "region": "graphland"})
    shop.flush()
    page = open_page("pipeline")
    nodes = page.locator("g.node")
    expect(nodes.first).to_be_visible()
    names = {node.get_attribute("data-node") for node in nodes.all()}
    assert {f"topic:{ORDERS}", f"query:{ORDERS}", "view:revenue_per_minute", "topic:shop.dead"} <= names
    expect(page.locator("path.wire")).to_have_count(8)

    page.locator('[data-node="view:revenue_per_minute"]').click()
    detail = page.get_by_role("region", name="Selected node")
    expect(detail.get_by_role("heading", level=2)).to_have_text("revenue_per_minute")
    expect(detail.get_by_role("row", name="graphland")).to_be_visible()

    topic = page.locator(f'[data-node="topic:{ORDERS}"]')
    topic.focus()
    page.keyboard.press("Enter")
    expect(detail.get_by_role("heading", level=2)).to_have_text(ORDERS)
    expect(detail).to_contain_text("o-graph")
    expect(topic).to_have_attribute("aria-pressed", "true")
    detail.get_by_role("link", name="Open the topic").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(ORDERS)


def test_a_query_that_fails_is_seen_in_the_graph(shop, open_page):
    page = open_page("pipeline")
    query = page.locator('[data-node="query:shop.clicks"]')
    expect(query.locator(".node-light")).to_have_class("node-light is-ok")
    shop.status.query("shop.clicks", state="failed", error="the disk is full")
    expect(query.locator(".node-light")).to_have_class("node-light is-bad")
    shop.status.query("shop.clicks", state="running", error=None)
    expect(query.locator(".node-light")).to_have_class("node-light is-ok")
