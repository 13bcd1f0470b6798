"""An order from the page's button through the log and Spark to the revenue chart, all of it real."""

import json
import re
import subprocess
import sys

import pytest
from playwright.sync_api import expect

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

PATIENCE_MS = 240_000
APPLICATION = '''
from headrace import App, agg, tumbling

app = App("shop")
orders = app.stream(
    "shop.orders",
    schema="order_id string, region string, amount double, placed_at timestamp",
    event_time="placed_at",
    partitions=1,
)


@app.view
def revenue_per_minute():
    """Revenue of each region, minute by minute."""
    return orders.window(tumbling("1 minute"), by="region", emit="update").agg(revenue=agg.sum("amount"))
'''


@pytest.fixture
def address(tmp_path):
    """Where `headrace run` serves its console, with its own log and Spark."""
    (tmp_path / "shop.py").write_text(APPLICATION)
    command = [sys.executable, "-m", "headrace", "run", "shop.py", "--data", "data", "--json"]
    with (tmp_path / "messages").open("wb") as messages:
        running = subprocess.Popen(
            [*command, "--cores", "1", "--http", "127.0.0.1:0", "--until-stdin-closes"],
            cwd=tmp_path,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=messages,
        )
    said = (json.loads(line).get("message", "") for line in running.stdout)
    found = next((match for each in said if (match := re.search(r"http://[\d.]+:\d+", each))), None)
    assert found, (tmp_path / "messages").read_text()
    yield found.group()
    running.stdin.close()
    running.stdout.read()
    running.stdout.close()
    assert running.wait(60) == 0, (tmp_path / "messages").read_text()


def test_an_order_of_the_button_comes_through_the_log_and_spark_to_the_chart(address, open_page):
    page = open_page(url=address, troubles_allowed=True)  # "not yet" is an answer that browsers call an error
    form = page.get_by_role("form", name="Send a record")
    form.get_by_label("region").fill("lakeside", timeout=PATIENCE_MS)
    form.get_by_label("amount").fill("123.5")
    form.get_by_role("button", name="Place an order").click()

    trail = form.locator(".trail li")
    expect(trail.first).to_contain_text("shop.orders:0@0", timeout=PATIENCE_MS)
    chart = page.get_by_role("img", name=re.compile("^revenue_per_minute: revenue.*lakeside 123.5"))
    expect(chart).to_be_visible(timeout=PATIENCE_MS)
    expect(chart.locator("rect")).to_have_count(1)

    form.get_by_label("amount").fill("0.5")
    step = trail.filter(has_text="revenue_per_minute")
    for number in range(1, 6):  # the page waits half a minute for a batch; a busy machine may take longer
        form.get_by_role("button", name="Place an order").click()
        expect(trail.first).to_contain_text(f"shop.orders:0@{number}", timeout=PATIENCE_MS)
        expect(step).to_contain_text(re.compile("reflects the record|not yet"), timeout=PATIENCE_MS)
        if "reflects the record" in step.inner_text():
            break
    expect(step).to_contain_text("reflects the record")
    view = page.locator('[data-view="revenue_per_minute"]')
    expect(view).to_contain_text(f"{number + 1} on time", timeout=PATIENCE_MS)
