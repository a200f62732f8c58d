"""The first screen of a study's page: the answers of the reading test are in view, and nothing lies over another.

The questions and their key are in `docs/measured/reading.md`. A text that is below the fold does not count.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from assay.analysis.comparison import analyse
from assay.report.kit.view import render
from support.comparisons import record
from support.docs import DOCS, program

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

WIDE, NARROW, HIGH = 1280, 400, 800
ANSWERS = {
    "gpu-twenty-four": (
        "Turn on bf16_mixed", "half the time", "29 % less memory", "at the same loss", "do not add up",
        "1 is refuted (gradient_accumulation)", "worse +0.11",
        "its time (+24 %) is too noisy to tell", "CPU, 2 threads", "−68.2",
    ),
    "lecture-ladder": (
        "Choose mixed precision", "55 % less time", "32 % less memory", "70 % less memory", "2.4 × the time",
        "worse +0.17", "open +0.015", "14.7 MiB, but 14.0 MiB was predicted",
    ),
    "precision-ladder": (
        "Turn on bf16_mixed", "32 % less time", "29 % less memory", "half the memory, but 18 × the time", "open +0.013",
    ),
    "shakespeare-speedrun": (
        "Speedrun reaches a validation loss of 1.9095 first", "15.1 s", "1 min 18 s", "on one seed", "open +0.17",
        "not reached",
    ),
    "wikitext-recipe-checkpointing": (
        "60 % less memory and 38 % more time", "−34 %", "+17 %", "open −0.18", "open −0.33",
    ),
}  # fmt: skip
"""Texts that answer the questions on each study."""
PARTS = ("h1", ".first svg", ".summary")
SEEN = """() => [...document.querySelectorAll("h1, p, td, th, text")]
  .filter((one) => { const box = one.getBoundingClientRect(); return box.height && box.bottom <= innerHeight; })
  .map((one) => one.textContent.replace(/\\s+/g, " ").trim()).join("\\n")"""
OVERLAPS = """() => {
  const boxes = [...document.querySelectorAll(".first svg text")].filter((one) => one.textContent.trim())
    .map((one) => [one.textContent.trim(), one.getBoundingClientRect()]);
  const beside = (a, b) => a.right <= b.left + 1 || b.right <= a.left + 1;
  const apart = (a, b) => beside(a, b) || a.bottom <= b.top + 1 || b.bottom <= a.top + 1;
  return boxes.flatMap(([one, a], place) => boxes.slice(place + 1)
    .filter(([, b]) => !apart(a, b)).map(([other]) => `${one} / ${other}`));
}"""
"""Pairs of texts of the figure that lie over each other."""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The page of each study that the reading test asks about."""
    made, place = program("study_pages"), tmp_path_factory.mktemp("pages")
    files = {name: place / f"{name}.html" for name in ANSWERS}
    for name, file in files.items():
        with made._opened(DOCS / "studies" / name / "study.tar.xz") as (view, _):
            file.write_text(render(view), encoding="utf-8")
    return files


def show(browser: "Browser", file: Path, width: int) -> "Page":
    page = browser.new_page(viewport={"width": width, "height": HIGH})
    page.goto(file.as_uri())
    return page


@pytest.mark.parametrize("name", ANSWERS)
def test_each_answer_is_in_view(browser: "Browser", pages: dict[str, Path], name: str) -> None:
    page = show(browser, pages[name], WIDE)
    seen = page.evaluate(SEEN)
    assert [one for one in ANSWERS[name] if one not in seen] == []
    page.close()


def test_both_maps_of_a_factorial_are_in_view(browser: "Browser", pages: dict[str, Path]) -> None:
    page = show(browser, pages["gpu-twenty-four"], WIDE)
    ends = page.evaluate(
        "[...document.querySelectorAll('.first svg')].map((one) => one.getBoundingClientRect().bottom)"
    )
    assert len(ends) == 2
    assert max(ends) <= HIGH
    page.close()


@pytest.mark.parametrize("width", [WIDE, 800, NARROW])
@pytest.mark.parametrize("name", ANSWERS)
def test_no_text_of_the_figure_lies_over_another(
    browser: "Browser", pages: dict[str, Path], name: str, width: int
) -> None:
    page = show(browser, pages[name], width)
    assert page.locator(".first svg text").count() > 5, "texts are texts, not paths"
    assert page.evaluate(OVERLAPS) == []
    page.close()


@pytest.mark.parametrize("name", ANSWERS)
def test_a_narrow_screen_begins_with_sentence_figure_and_table(
    browser: "Browser", pages: dict[str, Path], name: str
) -> None:
    page = show(browser, pages[name], NARROW)
    tops = [page.evaluate(f"document.querySelector('{one}').getBoundingClientRect().top") for one in PARTS]
    assert tops == sorted(tops)
    assert tops[-1] < HIGH - 40, "the table begins on the first screen"
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_stand_out_from_the_page(browser: "Browser", tmp_path: Path, scheme: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    file = tmp_path / "page.html"
    file.write_text(render(analyse(record(seeds=3))), encoding="utf-8")
    page = browser.new_context(color_scheme=scheme, viewport={"width": WIDE, "height": HIGH}).new_page()
    page.goto(file.as_uri())
    faults = Axe().run(page).response["violations"]
    assert [(one["id"], [node["html"][:120] for node in one["nodes"]][:3]) for one in faults] == []
    page.context.close()


def test_a_link_opens_the_part_that_it_names(browser: "Browser", pages: dict[str, Path]) -> None:
    page = browser.new_page(viewport={"width": WIDE, "height": HIGH})
    page.goto(f"{pages['lecture-ladder'].as_uri()}#runs")
    assert page.evaluate("document.getElementById('runs').open")
    assert page.locator("h1:visible, h2:visible, h3:visible").count() <= 12
    page.close()


def test_a_figure_is_saved_with_its_colours(browser: "Browser", pages: dict[str, Path]) -> None:
    page = show(browser, pages["lecture-ladder"], WIDE)
    page.locator(".first .panel").first.hover()
    with page.expect_download() as started:
        page.locator(".first .save").first.click()
    saved = Path(started.value.path()).read_text(encoding="utf-8")
    assert saved.startswith("<svg")
    assert "var(--" not in saved
    page.close()
