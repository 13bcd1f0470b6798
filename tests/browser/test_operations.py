"""The panels for what went wrong: late records, dead letters, alerts, rebuilds, and the audit."""

import re

from playwright.sync_api import expect
from tests.browser.shop import DEAD, LATE, ORDERS, REVENUE, closed, dead_letter, late_record, minute, revenue

# Notices go by themselves after a few seconds; what they said is kept, however late it is looked for.
KEEP_NOTICES = """
window.notices = [];
document.addEventListener("DOMContentLoaded", () => new MutationObserver((changes) => {
    for (const { addedNodes } of changes) for (const box of addedNodes) window.notices.push(box.textContent);
}).observe(document.getElementById("notices"), { childList: true }));
"""


# The page hears nothing of what moves until the test lets it.
DEAF = """
window.EventSource = class extends EventSource {
    addEventListener(kind, heard) { super.addEventListener(kind, (event) => window.hears && heard(event)); }
};
"""


def wait_notice(page, text: str) -> None:
    page.wait_for_function("(text) => window.notices.some((said) => said.includes(text))", arg=text)


def test_late_records_are_counted_by_view_and_by_window(shop, open_page):
    counters = {"on_time": 90, "corrected": 7, "dropped": 3}
    window = minute(20)
    shop.apply(REVENUE, [closed(revenue(window, "late", 1.0))], watermark=minute(19), counters=counters)
    for offset in range(3):
        about = late_record("revenue_per_minute", window, 95, offset=offset)
        shop.send(LATE, {"order_id": "o-late"}, headers=about)
    shop.flush()
    page = open_page("late")
    view = page.locator(".late-view").filter(has_text="revenue_per_minute")
    expect(view).to_contain_text(re.compile(r"corrected\d+"))
    split = view.get_by_role("img")
    expect(split).to_have_attribute("aria-label", re.compile(r"on time [\d,]+, corrected \d+, dropped \d+"))
    windows = page.get_by_role("region", name="Late records by window")
    of_view = windows.get_by_role("row", name="revenue_per_minute")
    expect(of_view.filter(has=page.get_by_role("cell", name="3", exact=True))).to_be_visible()

    before = int(re.search(r"dropped (\d+)", split.get_attribute("aria-label")).group(1))
    shop.apply(REVENUE, [], watermark=minute(19), counters={"dropped": 1})
    expect(split).to_have_attribute("aria-label", re.compile(f"dropped {before + 1}"))


def test_a_dead_letter_tells_why_and_is_sent_again_once(shop, open_page):
    shop.send(DEAD, b"{}", key="o-other", headers=dead_letter("no event time", offset=42))
    shop.flush()
    page = open_page("dead-letters", script=KEEP_NOTICES)
    expect(page.get_by_role("row", name="no event time")).to_be_visible()
    shop.send(
        DEAD, b'{"order_id": oops', key="o-dead", headers=dead_letter("the value is not JSON", offset=41)
    )
    shop.flush()
    row = page.get_by_role("row", name="the value is not JSON")
    expect(row).to_contain_text("shop.orders:0@41")
    row.click()
    detail = page.get_by_role("complementary", name="Selected dead letter")
    expect(detail).to_contain_text("o-dead")
    expect(detail.locator("pre")).to_have_text('{"order_id": oops')

    page.get_by_role("searchbox", name="Filter by reason or value").fill("not JSON")
    expect(page.get_by_role("row", name="no event time")).to_have_count(0)
    row.get_by_role("checkbox").check()
    page.get_by_role("button", name="Redrive 1 dead letter").click()
    page.get_by_role("dialog").get_by_role("button", name="Redrive").click()
    wait_notice(page, "1 dead letter redriven.")
    page.goto(page.url.replace("dead-letters", f"topics/{ORDERS}"))
    expect(page.locator(".record-row:visible").filter(has_text="oops")).to_have_count(1)


def test_dead_letters_are_counted_by_their_reasons_and_shown_by_a_button_each(shop, open_page):
    for number in range(3):
        headers = dead_letter("amount: expected double", offset=50 + number)
        shop.send(DEAD, b"{}", key=f"o-{number}", headers=headers)
    shop.send(DEAD, b"{}", key="o-null", headers=dead_letter("value is null", offset=60))
    shop.flush()
    page = open_page("dead-letters")
    reasons = page.get_by_role("group", name="Reasons of the dead letters shown")
    often = reasons.get_by_role("button", name="amount: expected double (3)", exact=True)
    once = reasons.get_by_role("button", name="value is null (1)", exact=True)
    expect(often).to_be_visible()
    expect(once).to_be_visible()
    listed = [each.inner_text() for each in reasons.get_by_role("button").all()]
    assert listed.index("amount: expected double (3)") < listed.index("value is null (1)")
    often.click()
    expect(page.get_by_role("row", name="amount: expected double")).to_have_count(3)
    expect(page.get_by_role("row", name="value is null")).to_have_count(0)
    once.click()
    expect(page.get_by_role("row", name="value is null")).to_have_count(1)
    expect(page.get_by_role("row", name="amount: expected double")).to_have_count(0)
    once.click()  # again: all of them
    expect(page.get_by_role("row", name="amount: expected double")).to_have_count(3)
    expect(page.get_by_role("row", name="value is null")).to_have_count(1)


def test_what_comes_before_the_first_live_status_is_shown_too(shop, open_page):
    shop.apply(REVENUE, [], watermark=minute(19), counters={"dropped": 1})
    letters, late = open_page("dead-letters", script=DEAF), open_page("late", script=DEAF)
    expect(letters.get_by_role("heading", level=1)).to_have_text("Dead letters")
    split = late.locator(".late-view").filter(has_text="revenue_per_minute").get_by_role("img")
    expect(split).to_have_attribute("aria-label", re.compile(r"dropped \d+"))
    expect(letters.get_by_role("searchbox").or_(letters.get_by_text("No dead letters")).first).to_be_visible()
    before = int(re.search(r"dropped (\d+)", split.get_attribute("aria-label")).group(1))

    shop.send(DEAD, b"{}", key="o-early", headers=dead_letter("came while it was opened", offset=43))
    shop.apply(REVENUE, [], watermark=minute(19), counters={"dropped": 1})
    shop.flush()
    for page in (letters, late):
        page.evaluate("window.hears = true")
    expect(letters.get_by_role("row", name="came while it was opened")).to_be_visible()
    expect(split).to_have_attribute("aria-label", re.compile(f"dropped {before + 1}"))


def test_a_rebuild_asks_for_the_name_is_passed_on_and_shows_its_progress(shop, console, open_page):
    page = open_page("rebuild", script=KEEP_NOTICES)
    expect(page.get_by_text("Not rebuilt since the driver started.")).to_be_visible()
    page.get_by_role("button", name="Rebuild all views").click()
    sure = page.get_by_role("button", name="Rebuild", exact=True)
    expect(sure).to_be_disabled()
    page.get_by_label("Type shop to confirm").fill("shop")
    sure.click()
    wait_notice(page, "The rebuild was requested")
    console.wait_for_command("rebuild")

    shop.rebuild(targets={ORDERS: {"0": 100, "1": 100}}, positions={"0": 50, "1": 0})
    progress = page.get_by_role("progressbar", name=re.compile(f"^{re.escape(ORDERS)}: 50 of 200"))
    expect(progress).to_be_visible()
    expect(page.get_by_text(re.compile("^Rebuilding since"))).to_be_visible()
    shop.rebuilt()
    expect(page.get_by_text(re.compile("^Rebuilt at"))).to_be_visible()


def test_alerts_come_and_go_by_themselves(shop, open_page):
    page = open_page("alerts")
    shop.status.query("shop.clicks", state="failed", error="the disk is full")
    alert = page.get_by_role("list", name="Alerts").get_by_role("listitem").filter(has_text="shop.clicks")
    expect(alert).to_contain_text("the disk is full")
    badge = page.get_by_role("link", name="Alerts").locator(".badge")
    expect(badge).to_be_visible()
    shop.status.query("shop.clicks", state="running", error=None)
    expect(alert).to_have_count(0)
    shop.status.message("the till is open")
    expect(page.get_by_role("row", name="the till is open")).to_be_visible()


def test_every_change_is_in_the_audit(shop, open_page):
    page = open_page("topics")
    page.get_by_role("button", name="Create a topic").click()
    page.get_by_label("Name").fill("audited")
    page.get_by_role("button", name="Create", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("audited")
    page.get_by_role("link", name="Audit", exact=True).click()
    row = page.get_by_role("row", name="POST /v1/topics").first
    expect(row).to_contain_text("local")
    expect(row).to_contain_text("done 201")
    row.click()
    expect(page.locator(".under pre")).to_contain_text('"topic": "audited"')
