"""The small table: what it has of each row, which rows it keeps, and that a terminal of 80 columns holds it."""

import io
from collections.abc import Mapping
from typing import Any

import pytest
from rich.console import Console

from assay.analysis.comparison import analyse
from assay.records.evidence import Evidence, ValueProof
from assay.records.status import Status
from assay.records.study import ComparisonRecord
from assay.report.study.summary import (
    MOST_ROWS,
    OPEN,
    PROVEN,
    WRONG,
    SummaryChange,
    SummaryRow,
    fewer,
    print_summary,
    summary,
    whole,
)
from assay.report.study.view import StudyView
from support.comparisons import FACTORS, LABELS, TREATMENTS, record
from support.drawn_studies import drawn_study
from support.factorials import factorial, study

CHECKED = ValueProof(verdict=True, steps=3, replayed=1, middle_steps=1)
LONG = "sdpa_attention+bf16_mixed+activation_checkpointing+gradient_accumulation:micro_batches=4"


def printed(made: ComparisonRecord, *, terminal: bool = True, width: int = 80) -> list[str]:
    stream = io.StringIO()
    console = Console(file=stream, width=width, force_terminal=terminal, color_system=None)
    print_summary(StudyView(analyse(made)), console)
    return [line.rstrip() for line in stream.getvalue().splitlines()]


def rows(made: ComparisonRecord) -> dict[str, SummaryRow]:
    return {one.row.label: one for one in summary(StudyView(analyse(made))).rows}


def many(count: int, time: Mapping[int, float] | None = None) -> ComparisonRecord:
    """A study with so many rows besides the baseline; each has its number as its batch, and 1 or its own time."""
    levels = factorial({"training.batch_size": [str(number) for number in range(count + 1)]})
    return study(levels, lambda one: (1.0, (time or {}).get(int(one["training.batch_size"]), 1.0), 1.0))


@pytest.mark.parametrize(
    ("fraction", "text"),
    [
        (-0.124, "−12 %"),
        (0.65, "+65 %"),
        (0.004, "0 %"),
        (-0.004, "0 %"),
        (8.9, "+890 %"),
        (9.0, "× 10"),
        (17.3, "× 18"),
    ],
)
def test_changes_are_in_whole_percent_or_large_multiples(fraction: float, text: str) -> None:
    assert whole(fraction) == text


def test_each_row_has_memory_time_loss_and_its_proof() -> None:
    found = rows(record(seeds=3))
    assert list(found) == ["baseline", *LABELS]
    assert [one.text for one in found["baseline"].changes] == ["65.0 MiB", "52.0 ms"]
    assert found["baseline"].loss == "2.4160"
    sdpa = found["sdpa_attention"]
    assert [(one.text, one.predicted, one.tone) for one in sdpa.changes] == [
        ("−28 %", "−28 %", "better"),
        ("−12 %", "−14 %", "better"),
    ]
    assert (sdpa.loss, sdpa.loss_tone) == ("same", "neutral")
    assert found[LABELS[4]].changes[1].text == "≈ 0 %", "it cannot be told from none"


def test_a_study_without_times_has_no_column_of_them() -> None:
    made = record(seeds=3)
    untimed = made.model_copy(update={"protocol": made.protocol.model_copy(update={"blocks": 0})})
    assert summary(StudyView(analyse(untimed))).titles == ("memory",)
    assert not any("step time" in line for line in printed(untimed))


@pytest.mark.parametrize(
    ("loss", "text", "tone"),
    [
        (0.3, "worse +0.30", "worse"),
        (-0.3, "lower −0.30", "better"),
        (0.05, "worse +0.050", "worse"),
        (0.0, "same", "neutral"),
    ],
)
def test_a_loss_has_its_verdict_in_a_word(loss: float, text: str, tone: str) -> None:
    found = rows(record(seeds=3, factors={**FACTORS, TREATMENTS[0]: (1.0, 1.0, 1.0, loss)}))["sdpa_attention"]
    assert (found.loss, found.loss_tone) == (text, tone)


@pytest.mark.parametrize(
    ("text", "fraction", "noisy"),
    [
        ("≈ +24 %", 0.24, True),
        ("≈ −24 %", -0.24, True),
        ("≈ +3 %", 0.03, False),
        ("+24 %", 0.24, False),
        ("", None, False),
    ],
)
def test_a_change_is_noisy_if_it_is_large_and_cannot_be_told(text: str, fraction: float | None, noisy: bool) -> None:
    assert SummaryChange(text, fraction, "", "neutral").noisy(0.07) is noisy


def test_one_seed_leaves_a_loss_open() -> None:
    assert rows(record(seeds=1, processes=3))["bf16_mixed"].loss.startswith("open")


def test_marks_tell_proven_wrong_and_open_rows_apart() -> None:
    idle = Evidence(optimization="bf16_mixed", observed="0 of 49 matmuls", verdict=False)
    changes: dict[str, dict[str, Any]] = {
        TREATMENTS[1]: {"evidence": (idle,), "status": Status.NO_EFFECT, "reason": "no effect"},
        TREATMENTS[0]: {"values": CHECKED, "proven_until": "end"},
        TREATMENTS[2]: {"values": CHECKED, "proven_until": "end"},
        TREATMENTS[3]: {"evidence": (), "status": Status.OUT_OF_MEMORY, "reason": "lost"},
    }
    made = record(seeds=3, changes=changes)
    found = rows(made)
    assert {label: one.proof for label, one in found.items()} == {
        "baseline": "",
        **dict(zip(LABELS, (PROVEN, WRONG, PROVEN, "", OPEN), strict=True)),
    }
    below = printed(made)
    assert any(line.startswith("– gradient_accumulation: ") and line.endswith("lost") for line in below)
    assert any(line.startswith(f"{WRONG} bf16_mixed: no effect") for line in below)
    assert any(line.startswith(f"{OPEN} sdpa_attention + bf16_mixed + ") for line in below)


def test_a_row_with_wrong_values_has_a_cross_whatever_else_was_proven() -> None:
    wrong = {TREATMENTS[0]: {"status": Status.WRONG_VALUES, "reason": "its losses differ"}}
    made = record(seeds=3, changes=wrong)
    assert rows(made)["sdpa_attention"].proof == WRONG
    assert f"{WRONG} sdpa_attention: wrong values: its losses differ" in printed(made)
    assert "Do not use sdpa_attention: the values are wrong" in StudyView(analyse(made)).answer


def test_all_proven_rows_have_one_line_on_what_the_mark_means() -> None:
    proven = {TREATMENTS[0]: {"values": CHECKED, "proven_until": "end"}}
    lines = printed(record(seeds=3, treatments=TREATMENTS[:1], changes=proven))
    assert lines[-1] == f"{PROVEN} each optimization took effect, and its values are right"


def test_a_few_rows_are_all_kept() -> None:
    found = summary(StudyView(analyse(many(MOST_ROWS))))
    assert fewer(found, "") == found.rows


def test_rows_that_the_answer_names_and_the_fastest_are_kept_of_many() -> None:
    made = many(14, {14: 3.0, 13: 0.5, 12: 0.7})
    found = summary(StudyView(analyse(made)))
    kept = [one.row.label for one in fewer(found, "Choose batch 14, not batch 11.")]
    assert len(kept) == 1 + MOST_ROWS
    assert kept[0] == "baseline"
    assert {"batch 11", "batch 12", "batch 13", "batch 14"} <= set(kept)
    assert "batch 1" not in kept or kept.count("batch 1") == 1
    assert kept == [one.row.label for one in found.rows if one.row.label in kept], "in the order of the study"
    assert "batch 14" not in [one.row.label for one in fewer(found, "")], "it is the slowest"
    assert "5 more rows with --full" in printed(made)


def test_a_name_within_a_longer_one_is_not_named() -> None:
    found = summary(StudyView(analyse(many(14, {1: 3.0}))))
    assert "batch 1" not in [one.row.label for one in fewer(found, "Choose batch 14.")]
    assert "batch 1" in [one.row.label for one in fewer(found, "Choose batch 1 or batch 14.")]


@pytest.mark.parametrize("terminal", [True, False])
def test_the_table_is_at_most_80_columns_wide_with_long_names_and_wide_figures(terminal: bool) -> None:
    wide = {name: (40 * memory, 1.0, 18.4 * time, 0.003) for name, (memory, _, time, _) in FACTORS.items()}
    wide["baseline"] = wide["baseline (again)"] = (1500.0, 1.0, 0.11, 0.0)
    made = record(seeds=3, treatments=(*TREATMENTS, LONG), factors={**wide, LONG: (2e4, 1.0, 90.0, 0.3)})
    lines = printed(made, terminal=terminal)
    table = lines[: next(at for at, line in enumerate(lines) if line[:1] in (PROVEN, WRONG, OPEN, "–"))]
    assert max(map(len, table)) <= 80
    assert not any("…" in line for line in table)
    assert any(line.startswith("gradient_accumulation") for line in table)


@pytest.mark.parametrize("width", [40, 60, 77])
def test_a_narrow_terminal_has_every_change_and_loss_whole(width: int) -> None:
    factors = {**FACTORS, TREATMENTS[0]: (5.72, 0.78, 0.88, 0.5)}
    made = record(seeds=3, factors=factors)
    lines = printed(made, width=width)
    table = lines[: next(at for at, line in enumerate(lines) if not line)] if "" in lines else lines
    assert max(map(len, table)) <= width
    whole_table = "\n".join(table)
    assert "…" not in whole_table
    for one in rows(made).values():
        for text in (one.loss, *(change.text for change in one.changes)):
            assert text in whole_table


def test_drawn_studies_fit_80_columns() -> None:
    for seed in range(30):
        assert max(map(len, printed(drawn_study(seed)))) <= 80
