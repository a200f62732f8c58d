"""Figures, tables and filters in a real Chromium, and hostile names, of which nothing is executed."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from assay.config import Home
from assay.files import open_file
from assay.launch.prepare import ReadyRun
from assay.records.status import Status
from assay.store.result import begun_result
from assay.studies.folder import StudyFolder
from support.browsers import dashboard
from support.comparisons import record
from support.dashboards import begin_study, end_cell
from support.records import made, say, step

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

Open = Callable[..., "Page"]
Serve = Callable[[Path], str]

HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script><b>\"'><svg/onload=alert(3)>"


def test_a_rectangle_marks_rows_and_rows_mark_points(opened: Open, served: tuple[str, dict[str, str]]) -> None:
    page = opened(f"/studies/{served[1]['study']}")
    page.wait_for_selector("#front .points")
    page.locator("#front").scroll_into_view_if_needed()
    box = page.locator("#front .nsewdrag").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 2, box["y"] + 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 2, box["y"] + box["height"] - 2, steps=5)
    page.mouse.up()
    page.wait_for_function("() => document.querySelectorAll('#rows tr.chosen').length >= 5")
    assert "chosen" not in (page.get_attribute('#rows tr[data-row="baseline (again)"]', "class") or "")
    page.click("#unmark")
    assert page.locator("#rows tr.chosen").count() == 0
    page.check('#rows tr[data-row="baseline"] .mark')
    page.wait_for_function("() => Math.max(...document.querySelector('#front').data[0].marker.size) > 11")


def test_runs_are_filtered_while_typing_and_sorted_by_a_click(opened: Open) -> None:
    page = opened("/runs")
    page.fill("input[name=q]", "no such run")
    page.wait_for_selector("text=No run matches.")
    assert "q=no+such+run" in page.url
    page.fill("input[name=q]", "demo")
    page.wait_for_selector("#runs tbody tr")
    page.click("thead a:has-text('val loss')")
    page.wait_for_selector("th[aria-sort=descending] >> text=val loss")
    assert page.evaluate("document.activeElement.textContent").startswith("val loss")
    page.go_back()  # filters replace the address, so one step leaves the page
    assert page.url == "about:blank"


def test_ticked_runs_are_laid_over_each_other(opened: Open, served: tuple[str, dict[str, str]]) -> None:
    page = opened("/runs")
    for run in ("run", "other"):
        page.check(f'#runs [name=run][value="{served[1][run]}"]')
        page.fill("input[name=q]", "demo" if run == "run" else "")  # ticks stay when the table changes
        page.wait_for_function("(count) => document.querySelectorAll('#runs :checked').length >= count", arg=1)
    page.click("#overlay button")
    page.wait_for_url("**/runs/overlaid?*")
    for figure in ("#plot-loss", "#plot-seconds"):
        page.wait_for_selector(f"{figure} .main-svg")
        names = page.evaluate(f"[...new Set(document.querySelector('{figure}').data.map((one) => one.legendgroup))]")
        assert sorted(names) == sorted(served[1][run] for run in ("run", "other"))


def test_the_figure_of_a_study_fills_in_while_it_runs(opened: Open, serve: Serve, home: Home) -> None:
    found = record(seeds=3)
    folder = begin_study(home, found)
    with folder.locked():
        page = opened(f"/studies/{folder.id}", address=serve(home.root))
        page.wait_for_selector("text=fill in here as runs end")
        wave = [number for number, one in enumerate(found.cells) if one.cell.seed == 0]
        for number in wave:
            end_cell(home, folder, found, number)
        page.wait_for_selector("#front .main-svg")
        assert page.evaluate("document.querySelector('#front').data[0].x.length") == len(wave) - 1
        page.wait_for_selector(f"#ended:has-text('{len(wave)} of {len(found.cells)}')")
    page.wait_for_selector("#reload:not(.hidden)")


def test_nothing_of_a_hostile_record_is_executed(opened: Open, serve: Serve, home: Home, ready_run: ReadyRun) -> None:
    folder = made(home, ready_run)
    spec = folder.spec().model_copy(update={"preset": HOSTILE})
    say(folder, {"event": "note", "text": HOSTILE}, {"event": "phase", "name": HOSTILE}, step(0), step(1))
    folder.write_result(begun_result(spec).model_copy(update={"status": Status.FAILED, "reason": HOSTILE}))
    found = record(seeds=3, name=HOSTILE, question=HOSTILE)
    study = StudyFolder(home.reports / found.id)
    study.path.mkdir()
    study.write_record(found)
    # Figures and tables take the names of rows as texts as well.
    cells = open_file(study.record_file.read_bytes()).replace(b'"bf16_mixed"', b'"<img src=x onerror=alert(4)>"')
    study.record_file.write_bytes(cells)
    address = serve(home.root)
    for path in ("/", "/runs", f"/runs/{folder.id}", "/studies", f"/studies/{study.id}"):
        page = opened(path, address=address)
        page.on("dialog", lambda dialog: pytest.fail(f"a script ran: {dialog.message}"))
        page.wait_for_timeout(1500)
        assert page.locator("main img, main b, main svg[onload], main script:not([type])").count() == 0
    assert page.locator("#rows tr[data-row*=onerror]").count() == 1  # the last page is the study's
    page = opened(f"/runs/{folder.id}", address=address)
    page.wait_for_selector("#proofs li:has-text('onerror')")


def test_a_later_proof_takes_the_place_of_an_earlier_one(
    opened: Open, serve: Serve, home: Home, ready_run: ReadyRun
) -> None:
    folder = made(home, ready_run)
    seen = {"event": "evidence", "optimization": "bf16_mixed", "observed": "4 of 4 matmuls", "verdict": True}
    checks = [{"event": "values", "proof": {"verdict": True, "steps": steps}} for steps in (1, 2, 5)]
    say(folder, seen, checks[0], checks[1], {"event": "note", "text": "a note"}, checks[2], {**seen, "observed": "all"})
    page = opened(f"/runs/{folder.id}", address=serve(home.root))
    page.wait_for_selector("#proofs li:has-text('right in 5 steps')")
    lines = page.locator("#proofs li").all_inner_texts()
    assert [line.split(":")[0] for line in lines] == ["bf16_mixed", "values", "a note"]
    assert lines[0] == "bf16_mixed: proven, all"


def test_a_peak_that_was_not_measured_is_a_dash(opened: Open, serve: Serve, home: Home, ready_run: ReadyRun) -> None:
    folder = made(home, ready_run)
    block = {"event": "block", "steps": 2, "seconds": 0.2, "median_step_seconds": 0.1, "tokens": 32}
    say(folder, step(0), step(1), {**block, "process_peak_bytes": None})
    folder.write_result(begun_result(folder.spec()).model_copy(update={"status": Status.DONE}))
    page = opened(f"/runs/{folder.id}", address=serve(home.root))
    page.wait_for_selector("#plot-loss .main-svg")
    assert page.inner_text("#memory") == "–"


def test_a_list_of_runs_says_that_its_dashboard_has_stopped(opened: Open, home: Home) -> None:
    """Chromium itself logs the request that failed, so this page's console is not looked at."""
    with dashboard(home.root) as address:
        page = opened("/runs", address=address, watched=False)
        errors: list[object] = []
        page.on("pageerror", lambda error: errors.append(error))
    page.fill("input[name=q]", "demo")
    page.wait_for_selector("#said:has-text('The dashboard does not answer.')", state="attached")
    assert errors == []
