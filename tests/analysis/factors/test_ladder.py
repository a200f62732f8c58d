"""Rungs of a ladder: speeds by hand, which rows are rungs, and the document's own figures."""

from collections.abc import Mapping
from math import log

import pytest

from assay.analysis.choose.series import Rung, ladder
from assay.analysis.comparison import Comparison, analyse
from assay.config import Spec
from assay.records.published import PublishedStudy
from assay.records.study import CellResult, Curve
from assay.report.study.view import StudyView
from support.factorials import compared

STEPS = {"plain": 1.0, "fused": 0.8, "lost": 0.5, "full": 0.4}


def of(levels: Mapping[str, str]) -> tuple[float, float, float]:
    return 1.0, STEPS[levels["rung"]], 1.0


def document() -> PublishedStudy:
    return PublishedStudy.model_validate(
        {
            "document": "A log",
            "control": "A",
            "columns": [
                {"name": "tok/sec", "metric": "tokens_per_second"},
                {"name": "Tokens", "seen": "tokens"},
                {"name": "Books", "seen": "documents"},
                {"name": "Minutes", "seen": "minutes"},
            ],
            "rows": [
                {"name": "A", "row": "baseline", "figures": [100, 1000, 7, 5]},
                {"name": "B", "row": "rung=fused", "figures": [150, 1500, 9, None]},
                {"name": "C", "row": "rung=lost", "figures": [None, None, None, None]},
                {"name": "D", "row": "rung=full", "figures": [600, 4000, 12, 2.5]},
            ],
        }
    )


@pytest.fixture(scope="module")
def climbed() -> Comparison:
    rows = [{"rung": name} for name in STEPS]
    return compared(rows, of, between=0.01, published=document(), kind="one_at_a_time")


def by_row(comparison: Comparison) -> dict[str, Rung]:
    return {one.row.treatment: one for one in ladder(comparison)}


def test_speeds_are_multiples_of_the_rung_before_and_of_the_control(climbed: Comparison) -> None:
    found = by_row(climbed)
    assert list(found) == ["baseline", "rung=fused", "rung=lost", "rung=full"]
    assert found["baseline"].previous is None
    for name, previous, baseline in (("fused", 1.25, 1.25), ("lost", 1.6, 2.0), ("full", 1.25, 2.5)):
        one = found[f"rung={name}"]
        for multiple, expected in ((one.previous, previous), (one.baseline, baseline)):
            assert multiple is not None
            assert multiple.value == pytest.approx(expected, rel=0.03)
            assert multiple.interval is not None
            assert multiple.interval[0] < multiple.value < multiple.interval[1]
    product = 1.0
    for one in found.values():
        product *= 1.0 if one.previous is None else one.previous.value
    assert found["rung=full"].baseline is not None
    assert product == pytest.approx(found["rung=full"].baseline.value)


def test_the_documents_figures_skip_rows_without_one(climbed: Comparison) -> None:
    found = {name: one.printed for name, one in by_row(climbed).items()}
    assert found["baseline"] == ("A", None, None, 1000, 7, 5)
    assert found["rung=fused"] == ("B", 1.5, 1.5, 1500, 9, None)
    assert found["rung=lost"] == ("C", None, None, None, None, None)
    assert found["rung=full"] == ("D", 4.0, 6.0, 4000, 12, 2.5)


def test_a_ladder_has_its_cumulative_rows_only() -> None:
    pairs = [("off", "off"), ("on", "off"), ("on", "on"), ("off", "on")]
    rows = [dict(zip(("a", "b"), pair, strict=True)) for pair in pairs]
    found = by_row(compared(rows, lambda _: (1.0, 1.0, 1.0), kind="ladder"))
    assert list(found) == ["baseline", "a=on, b=off", "a=on, b=on"]
    assert ladder(compared(rows, lambda _: (1.0, 1.0, 1.0))) == ()


def test_the_section_shows_both_and_why_no_documents_are_counted(climbed: Comparison) -> None:
    section = next(one for one in StudyView(climbed).sections if one.section.name == "ladder")
    ours, theirs = (block for block in section.blocks if not isinstance(block, str))
    assert ours.columns[1:3] == theirs.columns[1:3] == ("× previous", "× baseline")
    assert theirs.rows[3] == ("D", "4.00", "6.00", "4,000", "12", "2.50")
    assert any(str(block).startswith("Documents seen: Without a stream, training reads") for block in section.blocks)
    told = StudyView(climbed).values()["sections"]["ladder"]
    assert {one["documents_seen"] for one in told["rungs"]} == {None}
    assert told["documents_seen_note"].startswith("Without a stream, training reads")


def test_the_documents_minutes_are_filled_at_our_speed(climbed: Comparison) -> None:
    found = by_row(climbed)
    speed = {name: one.row.metrics["tokens_per_second"] for name, one in found.items()}
    assert found["baseline"].tokens_in_its_minutes == 300 * speed["baseline"]
    assert found["rung=full"].tokens_in_its_minutes == 150 * speed["rung=full"]
    assert found["rung=fused"].tokens_in_its_minutes is None


def test_the_first_loss_is_that_before_any_update(climbed: Comparison) -> None:
    def begun(one: CellResult) -> CellResult:
        return one.model_copy(update={"curve": Curve(train_loss=(5.0 + one.cell.seed, 4.0))})

    cells = [begun(one) if one.cell.treatment != "rung=lost" else one for one in climbed.record.cells]
    asked = climbed.record.base.model_copy(
        update={"model": climbed.record.base.model.model_copy(update={"vocab_size": None})}
    )
    known = analyse(climbed.record.model_copy(update={"cells": tuple(cells), "base": asked}))
    assert [one.first_loss for one in ladder(known)] == [6.0, 6.0, None, 6.0]
    said = next(one.blocks for one in StudyView(known).sections if one.section.name == "ladder")
    assert any(f"ln V = {log(climbed.record.base.model.vocab_size):.3f}" in str(block) for block in said)


def test_documents_of_a_stream_are_those_of_a_run(climbed: Comparison) -> None:
    counts = {"baseline": 7, "rung=full": 12}

    def read(one: CellResult) -> CellResult:
        known = {"documents": counts.get(one.cell.treatment)}
        return one.model_copy(update={"result": one.result.model_copy(update=known)})

    cells = tuple(map(read, climbed.record.cells))
    streamed = analyse(climbed.record.model_copy(update={"cells": cells}))
    assert {name: one.documents for name, one in by_row(streamed).items() if one.documents is not None} == counts
    table, note = next(one.blocks for one in StudyView(streamed).sections if one.section.name == "ladder")[:3:2]
    assert [row[4] for row in table.rows] == ["7", "–", "–", "12"]
    assert note.startswith("Documents seen: A document of the stream counts once")
    assert "Without a stream, training reads windows" in note  # of the two rungs that have no number
    assert "Processes that load data" not in note
    assert StudyView(streamed).values()["sections"]["ladder"]["rungs"][3]["documents_seen"] == 12


def test_a_rung_that_alone_streams_in_other_processes_has_its_own_reason(climbed: Comparison) -> None:
    def streamed(one: CellResult) -> CellResult:
        if one.cell.treatment != "rung=full":
            return one
        run = one.cell.run.model_copy(update={"optimizations": (Spec(name="streaming"),)})
        return one.model_copy(update={"cell": one.cell.model_copy(update={"run": run})})

    cells = tuple(map(streamed, climbed.record.cells))
    study = StudyView(analyse(climbed.record.model_copy(update={"cells": cells})))
    note = study.values()["sections"]["ladder"]["documents_seen_note"]
    assert note.startswith("Without a stream")
    assert "Processes that load data read the stream" in note
