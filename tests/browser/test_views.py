"""The Views panel: freshness, chart, rows with filter, order, pages and CSV, and changes as they come."""

import csv
import io
from datetime import timedelta

import pyarrow as pa
from playwright.sync_api import expect
from tests.browser.shop import BEST, ORDERS, REVENUE, closed, corrected, minute, revenue, sold

from headrace.views.rebuilt import Rebuilds, compare_versions


def fill(shop, *, windows: int, regions=("east", "north", "south", "west")) -> list[dict]:
    """Windows of every region, in one batch; the rows."""
    newest = minute(2)
    rows = [
        revenue(newest - timedelta(minutes=window), region, 100 + 10 * window + place)
        for window in range(windows)
        for place, region in enumerate(regions)
    ]
    shop.apply(REVENUE, [closed(row) for row in rows], watermark=minute(2), counters={"on_time": len(rows)})
    return rows


def test_views_are_listed_with_what_they_hold_and_how_fresh_they_are(shop, open_page):
    shop.apply(BEST, [closed(sold(minute(12), "tea", 3))], watermark=minute(2))
    page = open_page("views")
    row = page.get_by_role("row", name="best_sellers")
    expect(row).to_contain_text("Pieces sold in ten minutes.")
    expect(row).to_contain_text("hopping 10 minutes every 1 minute")
    expect(row).to_contain_text("up to date")
    row.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("best_sellers")


def test_rows_are_filtered_ordered_and_paged(shop, open_page):
    fill(shop, windows=40)
    page = open_page("views/revenue_per_minute")
    rows = page.get_by_role("region", name="Rows of revenue_per_minute").locator("tbody tr")
    expect(rows).to_have_count(50)
    page.get_by_role("button", name="Next page").click()
    expect(page.get_by_text("Page 2, 50 rows")).to_be_visible()
    page.get_by_role("button", name="Previous page").click()
    expect(page.get_by_text("Page 1, 50 rows")).to_be_visible()

    page.get_by_label("Column").select_option("region")
    page.get_by_label("Value").fill("north")
    page.get_by_role("button", name="Filter", exact=True).click()
    expect(rows).to_have_count(40)
    page.get_by_role("button", name="revenue", exact=True).click()  # the largest first
    expect(rows.first).to_contain_text("491")
    page.get_by_role("button", name="revenue", exact=True).click()
    expect(rows.first).to_contain_text("101")
    page.get_by_role("button", name="Remove the filter region is north").click()
    expect(rows).to_have_count(50)


def test_csv_holds_the_rows_that_the_filter_lets_through(shop, open_page):
    fill(shop, windows=3)
    page = open_page("views/revenue_per_minute")
    page.get_by_label("Column").select_option("region")
    page.get_by_label("Value").fill("west")
    page.get_by_role("button", name="Filter", exact=True).click()
    expect(page.get_by_role("button", name="Remove the filter region is west")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    found = list(csv.DictReader(io.StringIO(download.value.path().read_text())))
    assert found and {each["region"] for each in found} == {"west"}


def test_a_wrong_filter_says_what_is_wrong(shop, open_page):
    page = open_page("views/revenue_per_minute", troubles_allowed=True)
    page.get_by_label("Column").select_option("orders")
    page.get_by_label("Value").fill("many")
    page.get_by_role("button", name="Filter", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("many")


def test_changes_come_live_and_corrections_are_marked(shop, open_page):
    before = revenue(minute(3), "harbour", 10.0)
    shop.apply(REVENUE, [closed(before)], watermark=minute(2))
    page = open_page("views/revenue_per_minute")
    expect(page.get_by_role("region", name="Changes")).to_contain_text("Live")
    chart = page.locator(".chart")
    expect(chart).to_be_visible()

    after = before | {"revenue": 12.5, "orders": 4}
    shop.apply(REVENUE, [corrected(before, after)], watermark=minute(2), counters={"corrected": 1})
    change = page.get_by_role("list", name="Changes of revenue_per_minute").get_by_role("listitem").first
    expect(change).to_contain_text("corrected")
    expect(change).to_contain_text("harbour")
    expect(change).to_contain_text("revenue 10 → 12.5")
    row = page.get_by_role("row", name="harbour")
    expect(row).to_contain_text("12.5")
    expect(page.locator(".corrected-mark")).to_have_count(1)

    page.get_by_role("button", name="Pause").click()
    shop.apply(REVENUE, [closed(revenue(minute(3), "lighthouse", 1.0))], watermark=minute(2))
    expect(page.get_by_text("Paused, 1 waiting")).to_be_visible()
    # Not before: the rows may have come before the change did, and come again with this one.
    expect(row).to_contain_text("corrected")
    expect(change).not_to_contain_text("lighthouse")
    page.get_by_role("button", name="Resume").click()
    expect(change).to_contain_text("lighthouse")


def test_the_chart_is_read_by_pointer_and_keyboard_and_drawn_otherwise(shop, open_page):
    fill(shop, windows=4)
    page = open_page("views/revenue_per_minute")
    chart = page.locator(".chart")
    expect(chart.locator("rect").first).to_be_visible()
    chart.focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".tip")).to_contain_text("north")
    page.get_by_label("Chart type").select_option("lines")
    expect(chart.locator("path.line").first).to_be_visible()
    page.get_by_label("Measure").select_option("orders")
    expect(page.locator(".chart-about")).to_have_text("orders")
    page.get_by_label("Chart type").select_option("ranking")
    expect(page.locator(".ranking li").first).to_be_visible()


def test_a_rebuilt_view_is_compared_with_the_shown_one_and_takes_its_place(shop, open_page):
    fill(shop, windows=2)
    at = minute(2)
    shown = [revenue(at, "north", 100), revenue(at, "south", 200), revenue(at, "west", 300)]
    rebuilt = [revenue(at, "north", 100), revenue(at, "south", 250), revenue(at, "east", 50)]
    tables = [pa.Table.from_pylist(rows, REVENUE.columns) for rows in (shown, rebuilt)]
    found = compare_versions((REVENUE, tables[0], {ORDERS: {0: 10}}), (REVENUE, tables[1], {ORDERS: {0: 12}}))
    rebuilds = Rebuilds(shop.data)
    page = open_page("views/revenue_per_minute")
    card = page.get_by_role("region", name="Rebuilt revenue_per_minute")
    expect(page.get_by_role("region", name="Rows of revenue_per_minute")).to_be_visible()
    expect(card).to_be_hidden()

    rebuilds.hold(REVENUE.name, "q-2")
    expect(card).to_contain_text("A rebuild of this view is under way")
    rebuilds.note(REVENUE.name, "q-2", found)
    try:
        expect(card).to_contain_text("3 rows shown, 3 rebuilt: 1 changed, 1 new, 1 gone.")
        expect(card).to_contain_text("2 records more")
        rows = page.get_by_role("region", name="Rows of revenue_per_minute that differ").locator("tbody tr")
        expect(rows).to_have_count(3)
        changed = rows.filter(has_text="south").get_by_role("cell")
        expect(changed.nth(3)).to_have_text("revenue 200")
        expect(changed.nth(4)).to_have_text("revenue 250")
        expect(rows.filter(has_text="west").get_by_role("cell").nth(0)).to_have_text("gone")
        expect(rows.filter(has_text="east").get_by_role("cell").nth(0)).to_have_text("new")

        page.goto(page.url.split("#")[0] + "#/rebuild")
        listed = page.get_by_role("region", name="Compared before they are shown")
        expect(listed).to_contain_text("waits for a decision")
        listed.get_by_role("link", name="revenue_per_minute").click()
        card.get_by_role("button", name="Show the rebuilt rows").click()
        sure = page.get_by_role("button", name="Show", exact=True)
        expect(sure).to_be_disabled()
        page.get_by_label("Type revenue_per_minute to confirm").fill("revenue_per_minute")
        sure.click()
        expect(card).to_contain_text("are shown as soon as the process that keeps this view notices")
        assert rebuilds.read(REVENUE.name).is_approved
    finally:
        rebuilds.release(REVENUE.name)
    expect(card).to_be_hidden()
