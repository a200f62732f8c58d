"""The page of a comparison, its last parts, and the data beside it."""

import html
import json
import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas
import pytest

from assay.analysis.comparison import Comparison, analyse
from assay.config import Home
from assay.errors import UsageError
from assay.records.evidence import Evidence
from assay.records.prediction import Memory, PhaseMemory
from assay.records.status import Status
from assay.report.comparison.page import built_table, frames, write_data
from assay.report.kit.view import breakable, check_page, no_break, render, write_page
from assay.report.study.view import StudyView
from support.comparisons import ENVIRONMENT, LABELS, TREATMENTS, record
from support.figures import drawn

HOSTILE = "<script>alert('x')</script>&\"$\\alpha$"
VOID = {"meta", "link", "br", "hr", "img", "input", "wbr", "path", "use", "rect"}


class Page(HTMLParser):
    """Elements with their attributes, the text, and whether every element is closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def small_print(made: Comparison) -> str:
    """What stands under the small table."""
    return re.findall(r'<p class="small">(.*?)</p>', render(made))[0]


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return analyse(record())


@pytest.fixture(scope="module")
def text(comparison: Comparison) -> str:
    with drawn():
        return render(comparison)


def test_it_is_well_formed(text: str) -> None:
    assert Page(text).open == []
    assert "built-in method" not in text


def test_it_needs_no_network(text: str) -> None:
    for tag, attributes in Page(text).elements:
        assert tag not in {"link", "iframe", "img", "object", "embed", "base"}
        for name, value in attributes.items():
            if name in {"src", "href", "xlink:href", "action", "data", "poster", "srcset"}:
                assert (value or "").startswith("#"), f"{tag} {name}={value}"
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)
    assert not re.search(r"\b(fetch|import|XMLHttpRequest|WebSocket|sendBeacon|eval)\b", script(text))


def script(text: str) -> str:
    """The one script of a page, which has no attributes."""
    (found,) = re.findall(r"<script>(.*?)</script>", text, flags=re.S)
    assert text.count("<script") == 1
    return str(found)


def test_it_shows_rows_figures_proofs_and_how_they_were_made(text: str) -> None:
    page = Page(text)
    words = " ".join(page.text.split())
    for label in LABELS:
        assert label in words
    for piece in (
        "−28.0 %",
        "[−13.0, −10.9]",
        "predicted 42.9 ms −14.2 %",
        "49 of 49 matmuls in bfloat16",
        "not distinguishable",
        "+0.20 %",
        "Some Processor @ 2.1 GHz",
        "2.13.0+cpu",
        "Dunnett's factor",
        "Smallest change that can be distinguished from none",
        "Fewer than three seeds",
        "n_layer",
    ):
        assert piece in words
    assert sum(tag == "svg" for tag, _ in page.elements) == 35, (
        "the lead figure, 10 of memory and time, 14 of losses, 10 of sections and predictions"
    )


def titles(text: str, tag: str) -> list[str]:
    return [unescape(" ".join(one.split())) for one in re.findall(rf"<{tag}>(.*?)</{tag}>", text, flags=re.S)]


def test_it_opens_with_the_sentence_one_figure_and_the_small_table(text: str, comparison: Comparison) -> None:
    study = StudyView(comparison)
    assert titles(text, "h1") == [study.headline]
    first = text[text.index("</h1>") : text.index("<nav")]
    assert [first.count(one) for one in ("<svg", "<table")] == [1, 1]
    assert all(html.escape(no_break(sentence), quote=True) in first for sentence in study.sentences[1:])
    lines = re.findall(r'<tr title="(.*?)">(.*?)</tr>', first, flags=re.S)
    assert [treatment for treatment, _ in lines] == ["baseline", *TREATMENTS]
    assert all(label in line for label, (_, line) in zip(LABELS, lines[1:], strict=True))


def test_headings_are_findings_and_the_rest_is_folded(text: str) -> None:
    headings, folded = titles(text, "h2"), titles(text, "summary")
    assert 1 + len(headings) <= 12
    assert headings[-2:] == ["All figures with their intervals", "Everything else"]
    assert {"Loss against seconds", "Loss by step", "Memory was predicted within 0.2 %"} <= set(headings)
    assert any(one.startswith("Gains do not add up: sdpa_attention + bf16_mixed + ") for one in headings)
    assert any(one.startswith("No other row beats sdpa_attention, ") for one in headings)
    assert {"Memory over a step", "Distribution of step times", "How each number was made"} <= set(folded)
    assert "1 of 5 rows has a loss as good as the baseline's" in folded


def test_links_of_the_contents_and_their_parts_belong_together(text: str) -> None:
    links = re.findall(r'href="#([\w-]+)"', text[text.index("<nav") : text.index("</nav>")])
    assert len(links) > 4
    assert all(text.count(f'id="{name}"') == 1 for name in links)


def test_figures_take_their_colours_from_the_page(text: str) -> None:
    figures = "".join(re.findall(r"<svg.*?</svg>", text, flags=re.S))
    assert set(re.findall(r"#[0-9a-f]{6}\b", figures)) == set()
    used = set(re.findall(r"var\((--[a-z0-9-]+)\)", figures))
    assert {"--ink", "--soft", "--grid", "--series-0", "--series-5"} <= used
    for name in used:
        assert text.count(f"{name}:") >= 2, f"{name} has no light and dark colour"


def test_texts_from_outside_are_escaped() -> None:
    proof = Evidence(optimization="bf16_mixed", observed=HOSTILE, verdict=True)
    changes: dict[str, dict[str, Any]] = {
        TREATMENTS[0]: {"status": Status.FAILED, "reason": HOSTILE},
        TREATMENTS[1]: {"evidence": (proof,)},
    }
    environment = ENVIRONMENT.model_copy(update={"processor": HOSTILE})
    made = record(changes=changes, title=HOSTILE)
    cells = tuple(
        one.model_copy(update={"result": one.result.model_copy(update={"environment": environment})})
        for one in made.cells
    )
    renamed = tuple(
        one.model_copy(update={"cell": one.cell.model_copy(update={"treatment": HOSTILE, "levels": {}})})
        if one.cell.treatment == TREATMENTS[4]
        else one
        for one in cells
    )
    treatments = (*TREATMENTS[:4], HOSTILE)
    text = render(analyse(made.model_copy(update={"cells": renamed, "treatments": treatments})))
    page = Page(text)
    assert sum(tag == "script" for tag, _ in page.elements) == 1
    assert "alert" not in script(text)
    assert page.text.count(HOSTILE) >= 5
    assert page.open == []


def test_a_comparison_without_figures_still_has_a_page() -> None:
    nothing = {
        "status": Status.KILLED,
        "reason": "signal 9",
        "blocks": (),
        "evidence": (),
        "environment": None,
        "predicted": None,
        "step_seconds": None,
        "memory": Memory(),
        "train_loss": None,
        "val_loss": None,
    }
    made = record(changes=dict.fromkeys(("baseline", "baseline (again)", *TREATMENTS), nothing))
    bare = tuple(one.model_copy(update={"curve": type(one.curve)()}) for one in made.cells)
    page = Page(render(analyse(made.model_copy(update={"cells": bare}))))
    assert page.text.count("killed: signal 9") == 7
    assert all(tag != "svg" for tag, _ in page.elements)


def test_an_interrupted_comparison_without_a_cell_has_a_page() -> None:
    text = render(analyse(record().model_copy(update={"cells": (), "rounds": ()})))
    assert "no process ran" in Page(text).text


def test_it_is_written_beside_the_record_or_where_wanted(comparison: Comparison, tmp_path: Path) -> None:
    path = write_page(comparison, Home(tmp_path))
    assert path == tmp_path / "reports" / comparison.record.id / "index.html"
    assert path.read_text() == render(comparison)
    assert [entry.name for entry in path.parent.glob("*.html")] == ["index.html"]
    names = {one.name for one in path.parent.iterdir()} - {"index.html"}
    assert {"answer.json", "rows.csv", "cells.parquet"} <= names
    place = tmp_path / "elsewhere"
    place.mkdir()
    elsewhere = write_page(comparison, Home(tmp_path / "other"), place / "my page.html")
    assert elsewhere.read_text() == path.read_text()
    assert {one.name for one in place.iterdir()} == {"my page.html", *(f"my page-{name}" for name in names)}
    assert not (tmp_path / "other" / "reports").exists()


def test_a_page_replaces_a_page_and_no_other_file(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    check_page(page)
    assert not page.exists()
    page.write_text(render(analyse(record())))
    check_page(page)
    study = tmp_path / "study.yaml"
    study.write_text("kind: factorial")
    for bad, says in ((study, "is no page"), (Path("/dev/null"), "is not a file"), (tmp_path, "is not a file")):
        with pytest.raises(UsageError, match=says):
            write_page(analyse(record()), Home(tmp_path), bad)
    assert study.read_text() == "kind: factorial"
    with pytest.raises(UsageError, match="cannot be written"):
        check_page(tmp_path / "missing" / "page.html")


def test_nothing_has_to_be_scrolled_on_a_narrow_screen(text: str) -> None:
    style = text[text.index("<style>") : text.index("</style>")]
    narrow = style[style.index("@media (max-width: 640px)") :]
    assert ".cells thead { display: none; }" in narrow
    table = ""
    for tag, attributes in Page(text).elements:
        table = attributes.get("class") or "" if tag == "table" else table
        if tag == "svg":
            assert attributes["class"] == "small"
        if tag == "td" and table != "summary":
            assert attributes.get("data-label")


def test_the_same_record_gives_the_same_page(comparison: Comparison, text: str) -> None:
    again = Comparison.model_validate_json(comparison.model_dump_json())
    with drawn():
        assert render(again) == text


def test_rows_beyond_the_last_panel_are_announced(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "rows have a panel" not in text
    monkeypatch.setattr("assay.report.comparison.page.MOST", 1)
    fewer = render(analyse(record(treatments=TREATMENTS[:1])))
    assert fewer.count("Only the first 1 rows have a panel") == 1  # the panels of memory, among which is the baseline's


def test_a_long_name_may_be_broken_at_its_joints() -> None:
    assert breakable("shape=wide, optimizations=sgd:momentum=0+lion") == (
        "shape=<wbr>wide, optimizations=<wbr>sgd:<wbr>momentum=<wbr>0+<wbr>lion"
    )
    assert breakable("<b>=") == "&lt;b&gt;=<wbr>"


MEBI = 2**20


def built(peak: int, tensors: int | None = None) -> dict[str, Any]:
    """What changes in a result whose process held 200 MiB before its build."""
    phases = {
        "import": PhaseMemory(process_peak_bytes=300 * MEBI, anonymous_bytes=150 * MEBI, file_bytes=50 * MEBI),
        "build": PhaseMemory(process_peak_bytes=peak * MEBI, tensors_peak_bytes=tensors),
        "first_step": PhaseMemory(process_peak_bytes=900 * MEBI, anonymous_bytes=0, file_bytes=0),
    }
    return {"memory": Memory(tensors_peak_bytes=MEBI, phases=phases), "parameters": MEBI}


def test_a_build_is_shown_beside_the_process_before_it_and_all_weights() -> None:
    made = analyse(record(changes={"baseline": built(212), TREATMENTS[1]: built(206)}))
    table = built_table(made)
    assert table.columns == ("treatment", "process, before", "process, peak", "weights in float32")
    assert table.rows == (
        ("baseline", "200 MiB", "212 MiB", "4.00 MiB"),
        (TREATMENTS[1], "200 MiB", "206 MiB", "4.00 MiB"),
    )
    assert "Memory while the model is built" in render(made)


def test_a_device_that_counts_has_its_tensors() -> None:
    table = built_table(analyse(record(changes={"baseline": built(212, 5 * MEBI), TREATMENTS[0]: built(206)})))
    assert table.columns[-1] == "tensors, peak"
    assert [row[-1] for row in table.rows] == ["5.00 MiB", ""]


def test_records_without_phases_have_no_table() -> None:
    assert built_table(analyse(record())).rows == ()


def test_cells_have_the_figures_of_the_record(comparison: Comparison) -> None:
    cells = frames(comparison)["cells"]
    assert len(cells) == len(comparison.record.cells)
    for line, one in zip(cells.to_dict("records"), comparison.record.cells, strict=True):
        assert (line["row"], line["seed"], line["run"]) == (one.cell.treatment, one.cell.seed, one.result.run)
        assert line["val_loss"] == one.result.val_loss
        assert line["tensors_peak_bytes"] == one.result.memory.tensors_peak_bytes
    assert not cells.duplicated(["row", "seed", "process", "replicate"]).any()


def test_losses_have_every_step_and_every_evaluation(comparison: Comparison) -> None:
    losses = frames(comparison)["losses"]
    curves = [one.curve for one in comparison.record.cells]
    trained = [value for curve in curves for value in curve.train_loss if value is not None]
    evaluated = [value for curve in curves for _, value in curve.evaluations if value is not None]
    assert list(losses["train_loss"].dropna()) == trained
    assert list(losses["val_loss"].dropna()) == evaluated
    assert trained
    assert evaluated


def test_both_kinds_of_files_have_the_same_values_and_repeat(comparison: Comparison, tmp_path: Path) -> None:
    first, again = tmp_path / "first", tmp_path / "again"
    write_data(StudyView(comparison), first)
    write_data(StudyView(comparison), again)
    names = sorted(one.name for one in first.iterdir())
    tables = ("rows", "cells", "losses", "memory")
    assert names == sorted(["answer.json", *(f"{name}.{kind}" for name in tables for kind in ("csv", "parquet"))])
    assert all((first / name).read_bytes() == (again / name).read_bytes() for name in names)
    for name in tables:
        text, binary = pandas.read_csv(first / f"{name}.csv"), pandas.read_parquet(first / f"{name}.parquet")
        assert list(text.columns) == list(binary.columns)
        assert len(text) == len(binary) > 0


def test_steps_have_their_seconds_and_memory_sums_to_the_predicted_peak(comparison: Comparison) -> None:
    found = frames(comparison)
    assert list(found["losses"]["seconds"].dropna()) == [
        value for one in comparison.record.cells for value in one.curve.step_seconds
    ]
    alive = found["memory"].groupby(["row", "place"])["bytes"].sum().groupby("row").max()
    for row in (comparison.baseline, *comparison.rows):
        assert row.predicted is not None
        assert alive[row.treatment] == row.predicted.tensors_peak_bytes


def test_the_answer_is_beside_the_page(comparison: Comparison, tmp_path: Path) -> None:
    write_data(StudyView(comparison), tmp_path)
    written = json.loads((tmp_path / "answer.json").read_text())
    assert [row["treatment"] for row in written["rows"]] == list(comparison.record.treatments)
    assert written["sections"]["answer"]["text"]


def test_a_study_without_cells_has_empty_tables(comparison: Comparison) -> None:
    empty = analyse(comparison.record.model_copy(update={"cells": ()}))
    assert frames(empty)["cells"].empty
    assert frames(empty)["losses"].empty
    assert frames(empty)["memory"].empty


def test_only_marks_that_the_small_table_has_are_explained() -> None:
    sure, unsure = small_print(analyse(record(seeds=3))), small_print(analyse(record(seeds=1, processes=3)))
    assert "≈: cannot be told from no change" in sure
    assert "open" not in sure
    assert "open: may be worse by more than 0.01 nats" in unsure


@pytest.mark.parametrize(
    ("here", "text"),
    [
        ({"threads": 2}, "CPU, 2 threads"),
        ({"threads": 1, "accelerator": "NVIDIA H200"}, "CPU, 1 thread"),
        ({"threads": 1, "accelerator": "NVIDIA H200", "device": "cuda"}, "NVIDIA H200"),
    ],
)
def test_the_first_line_names_the_device(here: dict[str, Any], text: str) -> None:
    changes = {"baseline": {"environment": ENVIRONMENT.model_copy(update=here)}}
    assert f" · {text}</p>" in render(analyse(record(changes=changes)))
