"""The overview: charts that move, freshness, alerts, and a record sent from the page."""

import re

from confluent_kafka import Consumer, TopicPartition
from playwright.sync_api import expect
from tests.browser.consoles import Console
from tests.browser.shop import BEST, ORDERS, REVENUE, closed, minute, revenue, sold


def ends(shop) -> dict[int, int]:
    """The log ends of the orders."""
    reader = Consumer({"bootstrap.servers": shop.bootstrap, "group.id": "ends", "log_level": 0})
    try:
        return {each: reader.get_watermark_offsets(TopicPartition(ORDERS, each), 60)[1] for each in range(4)}
    finally:
        reader.close()


def test_charts_move_when_a_batch_comes(shop, open_page):
    shop.apply(REVENUE, [closed(revenue(minute(9), "south", 40.0))], watermark=minute(8))
    page = open_page()
    card = page.locator('[data-view="revenue_per_minute"]')
    expect(card.get_by_role("list").get_by_text("south")).to_be_visible()
    expect(card).not_to_contain_text("overseas")
    shop.apply(REVENUE, [closed(revenue(minute(8), "overseas", 70.0))], watermark=minute(7))
    expect(card).to_contain_text("overseas")

    ranking = page.get_by_role("list", name="best_sellers: sold")
    shop.apply(BEST, [closed(sold(minute(1), "quince", 77))], watermark=minute(1))
    expect(ranking.get_by_role("listitem").first).to_have_text(re.compile(r"quince\s*77"))


def test_a_record_sent_from_the_page_is_followed_into_the_views(shop, open_page):
    for region in ("north", "south"):
        shop.send(ORDERS, {"order_id": "o-1", "region": region, "quantity": 2, "amount": 9.5})
    shop.flush()
    page = open_page()
    form = page.get_by_role("form", name="Send a record")
    expect(form.get_by_label("region")).to_have_value(re.compile("north|south"))
    expect(form.get_by_label("placed_at")).to_have_value(re.compile(r"^\d{4}-\d\d-\d\dT"))
    form.get_by_label("amount").fill("123.5")
    form.get_by_role("button", name="Place an order").click()
    trail = form.locator(".trail li")
    expect(trail.first).to_contain_text(re.compile(r"In the log shop\.orders:\d@\d+after"))
    expect(trail.nth(1)).to_contain_text("waiting for the view")

    shop.apply(REVENUE, [], offsets=ends(shop), watermark=minute(7))
    expect(trail.filter(has_text="revenue_per_minute")).to_contain_text("reflects the record")
    trail.first.get_by_role("link").click()
    expect(page.locator(".record-detail")).to_contain_text('"amount": 123.5')


def test_without_an_application_the_overview_says_how_to_start_one(broker, open_page):
    with Console(bootstrap=broker.bootstrap) as bare:
        page = open_page(url=bare.url)
        expect(page.get_by_text("No application yet")).to_be_visible()
        expect(page.get_by_text("headrace run app.py")).to_be_visible()
        for route, words in (
            ("views", "No views yet"),
            ("pipeline", "No pipeline yet"),
            ("rebuild", "No application"),
            ("late", "No windows"),
        ):
            page.goto(f"{bare.url}/#/{route}")
            expect(page.get_by_text(words)).to_be_visible()
        page.close()  # before its console: a browser logs each attempt to find it again


def test_a_second_click_sends_another_record_of_another_moment(open_page):
    page = open_page()
    form = page.get_by_role("form", name="Send a record")
    moment, name = form.get_by_label("placed_at"), form.get_by_label("order_id")
    expect(moment).to_have_value(re.compile(r"^\d{4}-"))
    before = moment.input_value(), name.input_value()
    form.get_by_role("button", name="Place an order").click()
    expect(form.locator(".trail li").first).to_contain_text("In the log")
    expect(name).not_to_have_value(before[1])
    assert moment.input_value() > before[0]
    name.fill("mine")
    form.get_by_role("button", name="Place an order").click()
    expect(form.locator(".trail li").first).to_contain_text("In the log")
    expect(name).to_have_value("mine")
