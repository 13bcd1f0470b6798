"""The frame around the panels: navigation, light and dark, keyboard, small windows, a console gone."""

import re

import pytest
from playwright.sync_api import expect
from tests.browser.consoles import Console

PANELS = {
    "Overview": "",
    "Pipeline": "pipeline",
    "Views": "views",
    "Alerts": "alerts",
    "Captures": "captures",
    "Topics": "topics",
    "Groups": "groups",
    "Late": "late",
    "Dead letters": "dead-letters",
    "Rebuild": "rebuild",
    "Audit": "audit",
}

# WCAG's contrast of every text with what is behind it; AA asks for 4.5, and 3 for large text.
CONTRAST = """() => {
    const channel = (value) => (value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
    const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
    const rgba = (colour) => {
        canvas.clearRect(0, 0, 1, 1);
        canvas.fillStyle = colour;
        canvas.fillRect(0, 0, 1, 1);
        const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
        return [r / 255, g / 255, b / 255, a / 255];
    };
    const over = (top, below) => [0, 1, 2].map((n) => top[n] * top[3] + below[n] * (1 - top[3]));
    const light = (c) => 0.2126 * channel(c[0]) + 0.7152 * channel(c[1]) + 0.0722 * channel(c[2]);
    const behind = (element) => {
        const layers = [];
        for (let each = element; each; each = each.parentElement) {
            const colour = rgba(getComputedStyle(each).backgroundColor);
            if (colour[3] > 0) layers.push(colour);
            if (colour[3] === 1) break;
        }
        return layers.reverse().reduce((below, top) => over(top, below), [1, 1, 1]);
    };
    const poor = [];
    for (const element of document.querySelectorAll("body *:not(svg *)")) {
        const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
        if (!own || !element.checkVisibility({ opacityProperty: true })) continue;
        if (element.closest(":disabled, .unseen")) continue;
        const style = getComputedStyle(element);
        const paper = behind(element);
        const ink = over(rgba(style.color), paper);
        const [one, other] = [light(ink), light(paper)].sort((a, b) => b - a);
        const ratio = (one + 0.05) / (other + 0.05);
        const enough = parseFloat(style.fontSize) >= 24 ? 3 : 4.5;
        if (ratio < enough) poor.push([element.className, element.textContent.slice(0, 30), ratio]);
    }
    return poor;
}"""

REACHABLE = "button, a[href], input, select, textarea, [role=button], [tabindex='0']"
UNNAMED = """(reachable) => [...document.querySelectorAll(reachable)]
    .filter((e) => e.checkVisibility())
    .filter((e) => !(e.textContent.trim() || e.getAttribute("aria-label") || e.title || e.labels?.length
                     || e.getAttribute("aria-labelledby")))
    .map((e) => e.outerHTML.slice(0, 120))"""


def test_every_panel_is_reached_from_the_navigation_and_is_titled(open_page):
    page = open_page()
    for name, route in PANELS.items():
        entry = page.get_by_role("navigation", name="Panels").get_by_role("link", name=re.compile(f"^{name}"))
        entry.click()
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(entry).to_have_attribute("aria-current", "page")
        assert page.title() == f"{name} · Headrace"
        assert page.url.endswith(f"#/{route}")
        assert page.evaluate(UNNAMED, REACHABLE) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_what_is_behind_it(open_page, scheme):
    page = open_page(color_scheme=scheme, reduced_motion="reduce")  # no colours halfway to others
    for route in PANELS.values():
        page.goto(page.url.partition("#")[0] + f"#/{route}")
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.locator(".loading")).to_have_count(0)
        assert page.evaluate(CONTRAST) == [], route


def test_light_and_dark_follow_the_system_until_the_reader_chooses(open_page):
    page = open_page("audit", color_scheme="dark")
    expect(page.get_by_role("heading", level=1)).to_be_visible()

    def paper() -> str:
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    dark = paper()
    page.emulate_media(color_scheme="light")
    light = paper()
    assert dark != light
    page.get_by_role("button", name="Theme: system").click()
    page.get_by_role("button", name="Theme: light").click()
    assert paper() == dark
    page.reload()
    expect(page.get_by_role("button", name="Theme: dark")).to_be_visible()
    assert paper() == dark


@pytest.mark.parametrize("width", [1024, 390])
def test_no_panel_is_wider_than_the_window(open_page, width):
    page = open_page(viewport={"width": width, "height": 768})
    for route in (*PANELS.values(), "topics/shop.orders", "views/revenue_per_minute"):
        page.goto(page.url.partition("#")[0] + f"#/{route}")
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.locator(".loading")).to_have_count(0)
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, route


def test_the_keyboard_reaches_panel_and_search_and_focus_is_seen(open_page):
    page = open_page("topics")
    expect(page.get_by_role("searchbox")).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the panel")).to_be_focused()
    page.keyboard.press("Tab")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("/")
    expect(page.get_by_role("searchbox", name="Search topics")).to_be_focused()
    page.get_by_role("link", name="Groups").click()
    expect(page.get_by_role("heading", level=1, name="Groups")).to_be_focused()


def test_nothing_moves_for_those_who_asked_for_that(open_page):
    page = open_page(reduced_motion="reduce")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    moving = page.evaluate(
        "() => [...document.querySelectorAll('*')].map(getComputedStyle)"
        ".filter((style) => style.transitionDuration !== '0s').length"
    )
    assert moving == 0


def test_a_console_that_goes_away_is_said_and_found_again(broker, open_page):
    with Console(bootstrap=broker.bootstrap) as one:
        page = open_page("topics", url=one.url, troubles_allowed=True)
        state = page.get_by_role("group", name="State")
        expect(state).to_contain_text("up")
        port = one.url.rpartition(":")[2]
    expect(state).to_contain_text("reconnecting")
    with Console(bootstrap=broker.bootstrap, flags=("--listen", f"127.0.0.1:{port}")):
        expect(state).to_contain_text("up")
