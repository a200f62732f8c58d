"""Rungs of a ladder: speeds by hand, which rows are rungs, and the document's own figures."""

from collections.abc import Mapping

import pytest

from assay.analysis.comparison import Comparison
from assay.analysis.factors.ladder import Rung, ladder
from assay.records.published import Published
from assay.report.study.sections import filled, values
from support.factorials import compared

STEPS = {"plain": 1.0, "fused": 0.8, "lost": 0.5, "full": 0.4}


def of(levels: Mapping[str, str]) -> tuple[float, float, float]:
    return 1.0, STEPS[levels["rung"]], 1.0


def document() -> Published:
    return Published.model_validate(
        {
            "document": "A log",
            "control": "A",
            "columns": [
                {"name": "tok/sec", "metric": "tokens_per_second"},
                {"name": "Tokens", "seen": "tokens"},
                {"name": "Books", "seen": "documents"},
            ],
            "rows": [
                {"name": "A", "row": "baseline", "figures": [100, 1000, 7]},
                {"name": "B", "row": "rung=fused", "figures": [150, 1500, 9]},
                {"name": "C", "row": "rung=lost", "figures": [None, None, None]},
                {"name": "D", "row": "rung=full", "figures": [600, 4000, 12]},
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
    assert found["baseline"] == ("A", None, None, 1000, 7)
    assert found["rung=fused"] == ("B", 1.5, 1.5, 1500, 9)
    assert found["rung=lost"] == ("C", None, None, None, None)
    assert found["rung=full"] == ("D", 4.0, 6.0, 4000, 12)


def test_a_ladder_has_its_cumulative_rows_only() -> None:
    pairs = [("off", "off"), ("on", "off"), ("on", "on"), ("off", "on")]
    rows = [dict(zip(("a", "b"), pair, strict=True)) for pair in pairs]
    found = by_row(compared(rows, lambda _: (1.0, 1.0, 1.0), kind="ladder"))
    assert list(found) == ["baseline", "a=on, b=off", "a=on, b=on"]
    assert ladder(compared(rows, lambda _: (1.0, 1.0, 1.0))) == ()


def test_the_section_shows_both_and_why_no_documents_are_counted(climbed: Comparison) -> None:
    section = next(one for one in filled(climbed) if one.section.name == "ladder")
    ours, theirs = (block for block in section.blocks if not isinstance(block, str))
    assert ours.columns[1:3] == theirs.columns[1:3] == ("× previous", "× baseline")
    assert theirs.rows[3] == ("D", "4.00", "6.00", "4,000", "12")
    assert any(str(block).startswith("Documents seen: Training reads windows") for block in section.blocks)
    told = values(climbed)["ladder"]
    assert {one["documents_seen"] for one in told["rungs"]} == {None}
    assert told["documents_seen_reason"].startswith("Training reads windows")
