"""Topic data is hostile: markup and scripts in every field are shown as text, and nothing of them runs."""

from urllib.parse import quote

import pytest
from confluent_kafka import Consumer, TopicPartition
from playwright.sync_api import Error, expect
from tests.browser.shop import (
    DEAD,
    LATE,
    REVENUE,
    closed,
    corrected,
    dead_letter,
    late_record,
    make_topics,
    minute,
    revenue,
)

EVIL = (
    '<x-evil></x-evil><img src="x" onerror="window.hacked=1"><script>window.hacked=1</script>'
    "<svg onload=window.hacked=1>\"'><style>*{display:none}</style><iframe src=javascript:window.hacked=1>"
)

WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (e) => window.violations.push(e.violatedDirective));
"""
INJECTED = """() => ({
    hacked: window.hacked,
    violations: window.violations,
    elements: [...document.querySelectorAll("x-evil, img, iframe, object, embed, style, body script")].length,
    handlers: [...document.querySelectorAll("*")]
        .filter((e) => e.getAttributeNames().some((name) => name.startsWith("on"))).length,
    links: [...document.querySelectorAll("a[href]")]
        .filter((a) => !/^(#|\\/)/.test(a.getAttribute("href"))).length,
})"""
NOTHING = {"hacked": None, "violations": [], "elements": 0, "handlers": 0, "links": 0}


@pytest.fixture(scope="module")
def infested(shop):
    """A log, a group, a view and a status with markup wherever data can be."""
    make_topics(shop.bootstrap, ["hostile"], partitions=1)
    headers = [(EVIL, EVIL.encode())]
    shop.send("hostile", {EVIL: EVIL, "list": [EVIL]}, key=EVIL, headers=headers)
    shop.send("hostile", EVIL.encode(), key=EVIL, headers=headers)
    shop.send(DEAD, EVIL.encode(), key=EVIL, headers=[*headers, *dead_letter(EVIL, topic=EVIL)])
    shop.send(LATE, EVIL.encode(), key=EVIL, headers=[*headers, *late_record(EVIL, minute(9), 5)])
    shop.flush()
    row = revenue(minute(6), EVIL, 1.0)
    shop.apply(REVENUE, [closed(row)], watermark=minute(5))
    shop.status.message(EVIL)
    shop.status.query("shop.clicks", state="failed", error=EVIL)
    config = {"bootstrap.servers": shop.bootstrap, "group.id": EVIL, "client.id": EVIL, "log_level": 0}
    reader = Consumer(config)
    reader.commit(offsets=[TopicPartition("hostile", 0, 1)], asynchronous=False)
    yield shop
    shop.status.query("shop.clicks", state="running", error=None)
    reader.close()


def open_watched(open_page, route: str):
    return open_page(route, script=WATCH, troubles_allowed=True)


def test_nothing_runs_in_lists(infested, open_page):
    page = open_watched(open_page, "")
    expect(page.get_by_role("group", name="State")).to_contain_text("up")
    for route in ("", "alerts", "groups", "late", "pipeline", "views", "topics", "rebuild", "audit"):
        page.goto(page.url.partition("#")[0] + f"#/{route}")
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.locator(".loading")).to_have_count(0)
        if route in ("alerts", "groups"):
            expect(page.locator("#main").get_by_text("<x-evil></x-evil>").first).to_be_visible()
        assert page.evaluate(INJECTED) == NOTHING, route


def test_nothing_runs_in_records_keys_and_headers(infested, open_page):
    page = open_watched(open_page, "topics/hostile")
    rows = page.locator(".record-row:visible")
    expect(rows).to_have_count(2)
    for row in rows.all():
        row.click()
        expect(page.locator(".record-detail .value")).to_contain_text("<x-evil></x-evil>")
        expect(page.locator(".record-detail dt").filter(has_text="<x-evil>")).to_have_count(1)
        assert page.evaluate(INJECTED) == NOTHING


def test_nothing_runs_in_view_rows_and_changes(infested, open_page):
    page = open_watched(open_page, "views/revenue_per_minute")
    expect(page.get_by_role("region", name="Changes")).to_contain_text("Live")
    before = revenue(minute(6), EVIL, 1.0)
    infested.apply(REVENUE, [corrected(before, before | {"revenue": 2.0})], watermark=minute(5))
    expect(page.locator(".change").first).to_contain_text("<x-evil></x-evil>")
    expect(page.locator("td").filter(has_text="<x-evil></x-evil>").first).to_be_visible()
    expect(page.locator(".legend li").filter(has_text="<x-evil>")).to_have_count(1)
    page.locator(".chart").focus()
    page.keyboard.press("ArrowLeft")
    page.get_by_label("Column").select_option("orders")
    page.get_by_label("Value").fill(EVIL)
    page.get_by_role("button", name="Filter", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("<x-evil></x-evil>")
    assert page.evaluate(INJECTED) == NOTHING


def test_nothing_runs_in_dead_letters_and_their_errors(infested, open_page):
    page = open_watched(open_page, "dead-letters")
    page.get_by_role("row", name="<x-evil></x-evil>").first.click()
    detail = page.get_by_role("complementary", name="Selected dead letter")
    expect(detail).to_contain_text("<x-evil></x-evil>")
    assert page.evaluate(INJECTED) == NOTHING


def test_nothing_runs_in_a_group_or_in_an_address(infested, open_page):
    page = open_watched(open_page, "groups")
    page.get_by_role("link", name="<x-evil></x-evil>").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("<x-evil></x-evil>")
    assert page.evaluate(INJECTED) == NOTHING
    unsplit = EVIL.replace("/", "")
    for panel in ("topics", "views"):
        for name, told in ((unsplit, "<x-evil>"), (EVIL, "there is nothing at this path")):
            page.goto(page.url.partition("#")[0] + f"#/{panel}/{quote(name, safe='')}")
            expect(page.get_by_role("alert")).to_contain_text(told)
            assert page.evaluate(INJECTED) == NOTHING


def test_the_browser_itself_refuses_text_as_markup(open_page):
    page = open_page(troubles_allowed=True)
    with pytest.raises(Error, match="TrustedHTML"):
        page.evaluate("() => { document.body.innerHTML = '<b>x</b>' }")
