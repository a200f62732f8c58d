"""The page of a study on a telephone: nothing is scrolled sideways, neither the page nor a part of it."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from assay.analysis.comparison import analyse
from assay.records.study import ComparisonRecord
from assay.report.page import render
from support.comparisons import record
from support.factorials import compared, factorial
from support.scaled import scaled_record

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser

NARROW = 400
"""Pixels of a narrow screen."""
SCROLLED = """() => [...document.querySelectorAll("*")]
  .filter((one) => one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).overflowX !== "visible")
  .map((one) => one.className)"""
"""Elements that are wider inside than they are shown."""
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
    page = browser.new_page(viewport={"width": NARROW, "height": 900})
    page.goto(file.as_uri())
    page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
    assert page.evaluate("document.documentElement.scrollWidth") == NARROW
    assert page.evaluate(SCROLLED) == []
    page.close()
