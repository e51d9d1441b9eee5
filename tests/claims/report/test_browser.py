"""The site in headless Chromium, opened from disk: search, filters, keyboard, phone, and no request leaves the disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="the browser tests need the package playwright")

CHROMIUM = os.environ.get("PAPERWORKS_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser") or ""
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
PHONE = {"width": 360, "height": 780}
DESK = {"width": 1280, "height": 900}

pytestmark = [
    pytest.mark.skipif(not CHROMIUM, reason="the browser tests need Chromium: apt-get install chromium"),
    pytest.mark.xdist_group("browser"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        launched = started.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield launched
        launched.close()


@pytest.fixture
def page(browser, site: Path) -> Iterator[Any]:
    """A page on the index; the test fails on any console error, and on any request that leaves the site's folder."""
    opened = browser.new_page(viewport=DESK)
    complaints: list[str] = []
    requests: list[str] = []
    opened.on(
        "console", lambda message: complaints.append(message.text) if message.type in {"error", "warning"} else None
    )
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("dialog", lambda dialog: (complaints.append(f"dialog {dialog.message}"), dialog.dismiss()))
    opened.on("request", lambda request: requests.append(request.url))
    opened.goto((site / "index.html").as_uri())
    yield opened
    opened.close()
    assert not complaints
    assert not [url for url in requests if not url.startswith((site.as_uri() + "/", "data:"))]


def titles(page: Any) -> list[str]:
    return page.locator("tbody tr:visible th a").all_inner_texts()


def go(page: Any, site: Path, name: str) -> None:
    page.goto((site / name).as_uri())


def test_search_and_filters(page):
    everything = titles(page)
    assert len(everything) == 4
    page.get_by_label("Search").fill("zebras MUSTER")
    assert titles(page) == ["Zebras in a lattice"]
    assert page.locator("[data-shown]").inner_text() == "Showing 1 of 4 papers"
    page.get_by_label("Search").fill("no such word")
    assert titles(page) == []
    assert page.get_by_text("No paper fits").is_visible()
    page.get_by_role("button", name="Clear").click()
    playwright.expect(page.locator("[data-shown]")).to_have_text("All papers")
    assert titles(page) == everything
    for label, value, expected in [
        ("Family", "theory", {"An estimator that keeps its head"}),
        ("Kind of test", "analogue", {"An estimator that keeps its head", "Zebras in a lattice"}),
        ("Details known from", "full-text", {"An estimator that keeps its head"}),
        ("Has a claim that is", "untested", {"An estimator that keeps its head", "Zebras in a lattice"}),
    ]:
        page.get_by_label(label, exact=True).select_option(value)
        assert set(titles(page)) == expected, label
        page.get_by_label(label, exact=True).select_option("")


def test_sorting_says_its_order(page):
    head = page.locator("th[data-sort=title]")
    assert head.get_attribute("aria-sort") == "ascending"
    first = titles(page)
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    assert titles(page) == first[::-1]
    page.locator("th[data-sort=family] button").click()
    assert head.get_attribute("aria-sort") is None
    assert page.locator("th[data-sort=family]").get_attribute("aria-sort") == "ascending"
    families = page.locator("tbody tr td.c-family").all_inner_texts()
    assert families == sorted(families)


def test_a_choice_outlives_a_visit_to_a_paper(page):
    page.get_by_label("Family").select_option("theory")
    page.get_by_role("link", name="An estimator that keeps its head").click()
    assert page.title() == "An estimator that keeps its head · Paperworks"
    page.go_back()
    assert page.get_by_label("Family").input_value() == "theory"
    assert titles(page) == ["An estimator that keeps its head"]


def test_a_claim_opens_at_its_place(page):
    page.locator(".ids a", has_text="A2").first.click()
    assert page.url.endswith("alpha.html#claim-A2")
    playwright.expect(page.locator("#claim-A2 h3")).to_be_in_viewport()
    image = page.locator("#figures img").first
    image.scroll_into_view_if_needed()
    playwright.expect(image).to_have_js_property("complete", True)
    assert page.evaluate("document.querySelector('#figures img').naturalWidth") > 0
    assert page.title().startswith("An estimator")  # the figure's script did not run


def test_hostile_texts_do_nothing(page, site):
    go(page, site, "papers/hostile.html")
    assert page.title().startswith("Hostile <script>")
    assert page.locator("img[src=x]").count() == 0
    assert page.locator("main script").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_never_scrolls_sideways(page, site, scheme):
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size(PHONE)
    for name in ("index.html", "errata.html", "verdicts.html", "papers/alpha.html", "papers/hostile.html"):
        go(page, site, name)
        page.evaluate("for (const details of document.querySelectorAll('details')) details.open = true")
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], name
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(21, 24, 27)"
    assert dark == (scheme == "dark")


def test_the_keyboard_reaches_everything(page, site):
    for name in ("index.html", "papers/alpha.html"):
        go(page, site, name)
        page.locator(".sort, .copy").first.wait_for()
        wanted = page.evaluate(
            """() => [...document.querySelectorAll('a[href], button, input, select, summary, [tabindex="0"]')]
                .filter(e => e.checkVisibility()).map((e, i) => { e.dataset.n = i; return i })"""
        )
        reached = []
        for _ in range(len(wanted) + 3):
            page.keyboard.press("Tab")
            number, outline = page.evaluate(
                "[document.activeElement.dataset.n, getComputedStyle(document.activeElement).outlineStyle]"
            )
            if number is not None:
                reached.append(int(number))
                assert outline == "solid", name
        assert set(wanted) <= set(reached), name


def test_the_skip_link_comes_first(page):
    page.keyboard.press("Tab")
    skip = page.locator(":focus")
    assert skip.inner_text() == "Skip to the content"
    assert skip.bounding_box()["x"] >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_it_works_without_scripts(browser, site):
    context = browser.new_context(java_script_enabled=False, viewport=DESK)
    page = context.new_page()
    page.goto((site / "index.html").as_uri())
    assert len(titles(page)) == 4
    assert not page.locator("form").is_visible()
    context.close()


def test_print_hides_what_paper_cannot_use(page, site):
    go(page, site, "papers/alpha.html")
    page.emulate_media(media="print")
    assert not page.locator(".contents").is_visible()
    assert not page.locator(".top").is_visible()
    assert page.locator("#claim-A1 .sentence").is_visible()
