"""The Groups panel: lag in records and in time, its trend, and who is in a group."""

from confluent_kafka import Consumer, TopicPartition
from playwright.sync_api import expect
from tests.browser.shop import make_topics


def test_groups_show_their_lag_and_how_it_goes(shop, open_page):
    make_topics(shop.bootstrap, ["grouped"], partitions=2)
    for number in range(40):
        shop.send("grouped", {"n": number}, partition=number % 2)
    shop.flush()
    reader = Consumer({"bootstrap.servers": shop.bootstrap, "group.id": "billing", "log_level": 0})
    reader.commit(
        offsets=[TopicPartition("grouped", 0, 5), TopicPartition("grouped", 1, 20)], asynchronous=False
    )
    page = open_page("groups")
    row = page.get_by_role("row", name="billing")
    expect(row).to_contain_text("15")
    shop.send("grouped", {"n": 40}, partition=1)
    shop.flush()
    expect(row).to_contain_text("16")  # by itself
    expect(row.locator("svg.spark")).to_be_visible()

    row.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("billing")
    expect(page.get_by_text("16 records")).to_be_visible()
    partitions = page.get_by_role("region", name="Partitions").locator("tbody tr")
    expect(partitions).to_have_count(2)
    expect(partitions.first).to_contain_text("grouped")
    expect(partitions.first).to_contain_text("15")
    expect(page.get_by_text("No members; the committed offsets are kept")).to_be_visible()
    reader.close()


def test_members_of_a_group_are_shown(shop, open_page):
    make_topics(shop.bootstrap, ["joined"], partitions=2)
    reader = Consumer(
        {"bootstrap.servers": shop.bootstrap, "group.id": "joiners", "client.id": "till-7", "log_level": 0}
    )
    reader.subscribe(["joined"])
    while not reader.assignment():
        reader.poll(0.1)
    try:
        page = open_page("groups/joiners")
        members = page.get_by_role("region", name="Members").locator("tbody tr")
        expect(members).to_have_count(1)
        expect(members).to_contain_text("till-7")
        expect(members).to_contain_text("joined:0 joined:1")
    finally:
        reader.close()
