"""Every view in a real Chromium: no message in its console, no sideways scroll, contrast, keys, and what moves."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.browsers import LONGEST, training

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

Open = Callable[..., "Page"]
Serve = Callable[[Path], str]

VIEWS = {
    "home": "/",
    "runs": "/runs",
    "overlaid": "/runs/overlaid?run={run}&run={other}",
    "run": "/runs/{run}",
    "studies": "/studies",
    "study": "/studies/{study}",
    "scaling-study": "/studies/{scaling}",
    "what-if": "/what-if?preset=gpt2-124m&device=a100&with=bf16_mixed",
    "own-model": "/what-if/model?model={model}",
    "scaling": "/scaling?law=study:{scaling}&flops=1e12&price=2.5",
}
POINTS = 'Math.max(0, ...(document.querySelector("#plot-loss").data ?? []).map((one) => one.x.length))'
"""Number of points of the curve of losses."""
CHANGED = "(before) => (document.querySelector('#answer dd') ?? {innerText: before}).innerText !== before"
"""Whether the first figure of an answer is another one."""
FITTED = "(before) => (document.querySelector('#fit:not(.stale) tbody') ?? {innerText: before}).innerText !== before"
"""Whether the devices on which a step fits have other needs."""
RULES = ("wcag2a", "wcag2aa", "wcag21aa")


def settled(page: "Page") -> "Page":
    """Wait until every visible figure is drawn."""
    script = """() => [...document.querySelectorAll(".plot")].filter((one) => one.offsetParent)
                  .every((one) => one.querySelector(".main-svg"))"""
    page.wait_for_function(script)
    return page


def kept(page: "Page", name: str) -> None:
    """Keep a picture if a folder for them is named."""
    folder = os.environ.get("ASSAY_SCREENSHOTS")
    if folder:
        page.screenshot(path=Path(folder) / f"{name}.png")


def hovered(page: "Page") -> None:
    """Move the pointer over every figure, because its labels are drawn only then."""
    for figure in page.query_selector_all(".plot"):
        figure.scroll_into_view_if_needed()
        box = figure.bounding_box()
        for share in (0.3, 0.5, 0.7) if box else ():
            page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2)
            page.wait_for_timeout(60)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_is_sound(view: str, width: int, scheme: str, opened: Open, served: tuple[str, dict[str, str]]) -> None:
    from axe_playwright_python.sync_playwright import Axe

    page = settled(opened(VIEWS[view].format(**served[1]), width, scheme))
    hovered(page)
    page.mouse.move(0, 0)
    page.evaluate("scrollTo(0, 0)")
    kept(page, f"{view}-{width}-{scheme}")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    found = Axe().run(page, options={"runOnly": {"type": "tag", "values": list(RULES)}})
    assert found.violations_count == 0, found.generate_report()


def test_the_curves_of_a_run_move_while_it_trains(opened: Open, serve: Serve, tmp_path: Path) -> None:
    with training(tmp_path, steps=1_000_000):
        page = opened("/runs", address=serve(tmp_path))
        for _ in range(LONGEST):
            page.reload()
            link = page.query_selector("main a[href^='/runs/']")
            if link is not None:
                break
            page.wait_for_timeout(1000)
        assert link is not None
        link.click()
        page.wait_for_selector("#plot-loss")
        page.wait_for_function(f"() => {POINTS} > 2")
        before, step = page.evaluate(f"() => {POINTS}"), page.inner_text("#step")
        page.wait_for_function(f"(before) => {POINTS} > before + 2", arg=before)
        assert page.inner_text("#step") != step
        page.wait_for_function("() => document.querySelector('#now').innerText.endsWith(' MiB')")
        kept(page, "live")


def test_the_home_page_follows_what_runs(opened: Open, serve: Serve, tmp_path: Path) -> None:
    address = serve(tmp_path)
    page = opened("/", address=address)
    page.wait_for_selector("text=Nothing has run here yet")
    with training(tmp_path, steps=1_000_000):
        page.wait_for_selector(".running progress")
        page.wait_for_selector(".running >> text=left")


def test_a_model_of_ones_own_is_answered(opened: Open, served: tuple[str, dict[str, str]]) -> None:
    page = opened("/what-if")
    page.get_by_role("link", name="a model of yours").click()
    page.wait_for_selector("#own [data-state=found]")
    assert "It fits this machine" in page.inner_text("#own .answer")


def test_the_view_what_if_answers_a_slider_and_keeps_it_in_the_address(opened: Open) -> None:
    page = settled(opened("/what-if?preset=demo"))
    peak, fit = page.inner_text("#answer dd >> nth=0"), page.inner_text("#fit tbody")
    slider = page.get_by_label("layers, slider")
    slider.focus()
    layers = int(page.input_value("#number-layers"))
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    assert page.input_value("#number-layers") == str(layers + 3)
    page.wait_for_url(re.compile("layers="))
    page.wait_for_function(CHANGED, arg=peak)
    page.wait_for_function(FITTED, arg=fit)
    address = page.url
    assert page.input_value("#number-layers") in address
    again = settled(opened(address.removeprefix(address.split("/what-if")[0])))
    assert again.inner_text("#answer dd >> nth=0") == page.inner_text("#answer dd >> nth=0")


def test_the_view_what_if_turns_a_technique_on_and_bars_those_that_do_not_go_with_it(opened: Open) -> None:
    page = settled(opened("/what-if?preset=demo"))
    page.get_by_label("lion", exact=True).check()
    page.wait_for_url(re.compile("with=lion"))
    assert page.get_by_label("muon", exact=True).is_disabled()
    assert "--with lion" in page.inner_text("#answer .commands")
    page.get_by_label("lion", exact=True).uncheck()
    page.wait_for_function("() => !location.search.includes('lion')")
    assert page.get_by_label("muon", exact=True).is_enabled()


def test_a_command_is_copied(opened: Open) -> None:
    page = settled(opened("/what-if?preset=demo"))
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.click("#answer [data-copy] >> nth=0")
    page.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("() => navigator.clipboard.readText()") == "assay estimate demo"


def test_the_view_what_if_recommends_and_shows_the_stack(opened: Open) -> None:
    page = settled(opened("/what-if?preset=demo&layers=1&batch=1&device=l4"))
    page.get_by_text("Show this stack above").click()
    assert "with=" in page.url
    assert "--with" in page.inner_text("#answer .commands")


def test_the_view_what_if_names_the_impossible_and_goes_on(opened: Open) -> None:
    page = settled(opened("/what-if?preset=demo"))
    page.fill("#number-layers", "99999")
    page.wait_for_selector("#said.caution")
    page.wait_for_selector("#recommendation >> text=is not possible")
    assert page.query_selector("#fit h2") is None
    page.fill("#number-layers", "2")
    page.wait_for_selector("#said:not(.caution)")
    page.wait_for_selector("#fit h2")
    page.wait_for_selector("#recommendation >> text=is not possible", state="detached")


def test_scaling_answers_a_budget_that_is_dragged(opened: Open) -> None:
    page = settled(opened("/scaling"))
    before = page.inner_text("#answer dd >> nth=0")
    page.get_by_label("budget, slider").focus()
    page.keyboard.press("PageUp")
    page.wait_for_function(CHANGED, arg=before)
    page.wait_for_url(re.compile("flops="))
    assert page.input_value("#flops") in page.url.replace("%2B", "+")


def test_the_first_key_leads_past_the_navigation(opened: Open) -> None:
    page = opened("/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"


def test_light_or_dark_is_kept(opened: Open) -> None:
    page = settled(opened("/what-if"))
    paper = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(paper)
    page.click("#theme")
    dark = page.evaluate(paper)
    assert dark != light
    page.goto(page.url.replace("/what-if", "/scaling"))
    assert page.evaluate(paper) == dark


def test_hostile_text_of_an_address_runs_nothing(opened: Open) -> None:
    script = "%3Cimg%20src%3Dx%20onerror%3D%22window.hit%3D1%22%3E"
    for path in (f"/what-if?preset={script}", f"/what-if?with={script}", f"/scaling?law=study:{script}"):
        page = opened(path)
        page.wait_for_timeout(200)
        assert page.evaluate("window.hit === undefined")
