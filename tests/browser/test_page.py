"""The page of a study on a telephone: nothing is scrolled sideways, neither the page nor a part of it.

The pages of the studies that were run also show their answer at once, and no error in the console.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from assay.analysis.comparison import analyse
from assay.records.study import ComparisonRecord
from assay.report.kit.view import render
from support.comparisons import record
from support.docs import DOCS, program
from support.factorials import compared, factorial
from support.scaled import scaled_record

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

NARROW, HIGH = 400, 900
"""Pixels of a narrow screen."""
RECORDS = sorted((DOCS / "studies").glob("*/study.tar.xz"))
WIDTH = "document.documentElement.scrollWidth"
SCROLLED = """() => [...document.querySelectorAll("*")]
  .filter((one) => one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).overflowX !== "visible")
  .filter((one) => !one.matches(".kicker, .unseen"))
  .map((one) => one.className)"""
"""Elements that are wider inside than they are shown, but for two: the name above the heading, which a narrow screen
cuts, and words for readers of the screen."""
LEVELS = {"model.context_length": ("64", "128"), "optimizations": ("none", "activation_checkpointing", "lion")}


def of(kind: str) -> ComparisonRecord:
    """A comparison, a factorial study with long names, or a study of scaling."""
    if kind == "comparison":
        return record(seeds=3)
    return compared(factorial(LEVELS), lambda _: (1.2, 1.1, 1.0)).record if kind == "factorial" else scaled_record()


@pytest.mark.parametrize("kind", ["comparison", "factorial", "scaling"])
def test_nothing_is_scrolled_sideways(browser: "Browser", kind: str, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(render(analyse(of(kind))))
    page = browser.new_page(viewport={"width": NARROW, "height": HIGH})
    page.goto(file.as_uri())
    unfold(page)
    assert page.evaluate(WIDTH) == NARROW
    assert page.evaluate(SCROLLED) == []
    page.close()


def unfold(page: "Page") -> None:
    page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")


@pytest.mark.parametrize("record", RECORDS, ids=lambda file: str(file.parent.name))
def test_the_page_of_a_study_that_was_run_shows_its_answer_first(
    browser: "Browser", record: Path, tmp_path: Path
) -> None:
    for name, content in program("study_pages").page_files(record).items():
        (tmp_path / name).write_bytes(content)
    page = browser.new_page(viewport={"width": NARROW, "height": HIGH})
    messages: list[str] = []
    page.on("console", lambda one: messages.append(f"{one.type}: {one.text}"))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.on("requestfailed", lambda one: messages.append(f"{one.url} {one.failure}"))
    page.goto((tmp_path / "index.html").as_uri())
    boxes = [page.locator(one).first.bounding_box() for one in ("main h1", "main figure svg", "main table.summary")]
    tops = [box["y"] for box in boxes if box is not None]
    assert len(tops) == 3
    assert 0 < tops[0] < tops[1] < tops[2] < HIGH, "sentence, figure and table begin on the first screen"
    unfold(page)
    assert page.evaluate(WIDTH) == NARROW
    assert page.evaluate(SCROLLED) == []
    assert messages == []
    page.close()
