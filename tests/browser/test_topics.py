"""The Topics panel: a long list, the live tail, any place in the log, and what destroys asks twice."""

import re
from datetime import UTC, datetime, timedelta

from confluent_kafka.admin import AdminClient
from playwright.sync_api import expect
from tests.browser.shop import make_topics


def topics_of(shop) -> set[str]:
    return set(AdminClient({"bootstrap.servers": shop.bootstrap}).list_topics(timeout=60).topics)


def test_topics_are_listed_searched_and_ordered(shop, open_page):
    make_topics(shop.bootstrap, ["list.few", "list.many"], partitions=2)
    for number in range(30):
        shop.send("list.many", {"n": number})
    shop.send("list.few", {"n": 0})
    shop.flush()
    page = open_page("topics")
    page.get_by_role("searchbox", name="Search topics").fill("list.")
    rows = page.locator(".topic-row:visible")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("list.few")
    expect(rows.nth(1)).to_contain_text("30")
    page.get_by_role("button", name="Records").click()
    expect(rows.first).to_contain_text("list.many")
    page.get_by_role("grid", name="Topics").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("list.many")
    page.go_back()
    expect(page.get_by_role("searchbox", name="Search topics")).to_have_value("list.")


def test_a_topic_that_appears_elsewhere_appears_here(shop, open_page):
    page = open_page("topics")
    page.get_by_role("searchbox", name="Search topics").fill("elsewhere")
    expect(page.get_by_text("No topic matches")).to_be_visible()
    make_topics(shop.bootstrap, ["made.elsewhere"])
    expect(page.locator(".topic-row:visible")).to_contain_text("made.elsewhere")


def test_the_tail_is_live_pauses_and_resumes(shop, open_page):
    make_topics(shop.bootstrap, ["tail.live"], partitions=1)
    page = open_page("topics/tail.live")
    expect(page.get_by_text("No records yet")).to_be_visible()
    shop.send("tail.live", {"said": "first"}, key="k-1", headers=[("trace", b"abc")])
    shop.flush()
    rows = page.locator(".record-row:visible")
    expect(rows.first).to_contain_text('{"said":"first"}')
    rows.first.click()
    detail = page.get_by_role("complementary", name="Selected record")
    expect(detail).to_contain_text("tail.live:0@0")
    expect(detail).to_contain_text("k-1")
    expect(detail).to_contain_text("trace")
    expect(detail.locator("pre")).to_have_text('{\n  "said": "first"\n}')

    page.get_by_role("button", name="Pause").click()
    shop.send("tail.live", {"said": "second"})
    shop.flush()
    page.get_by_role("button", name="Show 1 new record").click()
    expect(rows.first).to_contain_text("second")
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    shop.send("tail.live", {"said": "third"})
    shop.flush()
    expect(rows.first).to_contain_text("third")


def test_values_are_decoded_json_text_bytes_and_null(shop, open_page):
    make_topics(shop.bootstrap, ["decoded"], partitions=1)
    for value in (b'{"a": [1, null, true]}', b"plain text", b"\xff\x00\xfe"):
        shop.send("decoded", value)
    shop.producer.produce("decoded", None, key="gone")
    shop.flush()
    page = open_page("topics/decoded")
    rows = page.locator(".record-row:visible")
    expect(rows).to_have_count(4)
    seen = {}
    for row in rows.all():
        row.click()
        offset = int(re.search(r"@(\d+)", row.inner_text()).group(1))
        expect(page.locator(".record-detail h2")).to_have_text(f"decoded:0@{offset}")
        seen[offset] = page.locator(".record-detail .value").inner_text()
    assert seen[0] == '{\n  "a": [\n    1,\n    null,\n    true\n  ]\n}'
    assert seen[1] == "plain text"
    assert seen[2] == "/wD+"
    assert seen[3] == "null"


def test_a_jump_to_an_offset_or_a_time_and_a_search_through_the_log(shop, open_page):
    make_topics(shop.bootstrap, ["jumps"], partitions=1)
    began = datetime.now(UTC) - timedelta(hours=2)
    for number in range(300):
        at = began + timedelta(seconds=20 * number)
        shop.send(
            "jumps",
            {"n": number, "word": "needle" if number == 123 else "hay"},
            timestamp=round(at.timestamp() * 1000),
        )
    shop.flush()
    page = open_page("topics/jumps")
    rows = page.locator(".record-row:visible")
    expect(rows.first).to_contain_text("0@299")
    page.get_by_label("Start position").select_option("offset")
    page.get_by_label("Offset or time").fill("200")
    page.keyboard.press("Enter")
    expect(rows.first).to_contain_text("0@200")
    expect(page.locator(".record-detail h2")).to_have_text("jumps:0@200")
    assert "offset=200" in page.url

    page.get_by_label("Start position").select_option("time")
    at = (began + timedelta(seconds=20 * 60 - 1)).astimezone()
    page.get_by_label("Offset or time").fill(page.evaluate(_LOCAL, at.timestamp() * 1000))
    page.keyboard.press("Enter")
    expect(rows.first).to_contain_text("0@60")

    page.get_by_label("Start position").select_option("earliest")
    expect(rows.first).to_contain_text("0@0")
    page.get_by_role("searchbox", name="Search in records").fill("needle")
    page.keyboard.press("Enter")
    expect(rows).to_have_count(1)
    expect(rows.first).to_contain_text("0@123")


_LOCAL = "ms => new Date(ms - new Date(ms).getTimezoneOffset() * 60000).toISOString().slice(0, 19)"


def test_a_topic_is_made_changed_and_deleted_with_its_name_typed(shop, open_page):
    page = open_page("topics")
    page.get_by_role("button", name="Create a topic").click()
    page.get_by_label("Name").fill("made.here")
    page.get_by_label("Partitions").fill("3")
    page.get_by_label("Settings").fill("retention.ms=3600000")
    page.get_by_role("button", name="Create", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("made.here")
    assert "made.here" in topics_of(shop)
    page.get_by_role("tab", name="Settings").click()
    expect(page.get_by_role("tabpanel", name="Settings")).to_contain_text("3600000")

    page.get_by_role("button", name="Settings").click()
    page.get_by_role("dialog").get_by_label("Settings").fill("retention.ms=7200000")
    page.get_by_role("button", name="Change", exact=True).click()
    expect(page.get_by_role("tab", name="Records")).to_have_attribute("aria-selected", "true")  # drawn anew
    page.get_by_role("tab", name="Settings").click()
    expect(page.get_by_role("tabpanel", name="Settings")).to_contain_text("7200000")

    page.get_by_role("tab", name="Records").click()
    page.get_by_label("Start position").select_option("earliest")  # who follows a topic that goes logs a 404
    expect(page.get_by_text("No records")).to_be_visible()
    page.get_by_role("button", name="Delete").click()
    sure = page.get_by_role("button", name="Delete topic")
    expect(sure).to_be_disabled()
    page.get_by_label("Type made.here to confirm").fill("made.her")
    expect(sure).to_be_disabled()
    page.get_by_label("Type made.here to confirm").fill("made.here")
    sure.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Topics")
    assert "made.here" not in topics_of(shop)


def test_a_list_that_is_read_anew_when_its_reader_leaves_is_no_error(shop, open_page):
    page = open_page("topics")
    expect(page.locator(".topic-row:visible").first).to_be_visible()
    page.route("**/v1/topics?*", lambda asked: None)  # never answered
    with page.expect_request("**/v1/topics?*"):
        make_topics(shop.bootstrap, ["left.meanwhile"])
    page.evaluate("location.hash = '#/alerts'")
    expect(page.get_by_role("heading", level=1)).to_have_text("Alerts")


def test_a_list_that_could_not_be_read_anew_is_at_the_next_status(shop, open_page):
    page = open_page("topics?search=refused", troubles_allowed=True)
    expect(page.get_by_text("No topic matches")).to_be_visible()
    refused = []

    def refuse(route):
        if refused:
            return route.continue_()
        refused.append(route)
        return route.abort()

    page.route("**/v1/topics?*", refuse)
    make_topics(shop.bootstrap, ["refused.once"])
    expect(page.locator(".topic-row:visible")).to_contain_text("refused.once")
    assert refused
    assert not [each for each in page.troubles if each.startswith("error:")]


def test_a_topic_that_cannot_be_made_says_why(open_page):
    page = open_page("topics", troubles_allowed=True)
    page.get_by_role("button", name="Create a topic").click()
    page.get_by_label("Name").fill("not a name!")
    page.get_by_role("button", name="Create", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("name must be 1 to 249 letters")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_the_list_has_few_elements_however_long_it_is(shop, open_page):
    make_topics(shop.bootstrap, [f"long.{number:03d}" for number in range(150)], partitions=1)
    page = open_page("topics?search=long.")
    expect(page.get_by_text(re.compile(r"150 of \d+ topics"))).to_be_visible()
    assert page.locator(".topic-row").count() < 70
    page.get_by_role("grid", name="Topics").focus()
    page.keyboard.press("End")
    expect(page.get_by_text("long.149")).to_be_visible()
    assert page.locator(".topic-row").count() < 70
