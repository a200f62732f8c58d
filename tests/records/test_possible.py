"""Figures that cannot be are named, wherever they are in a record, and all others are believed."""

import json

import pytest

from assay.records.evidence import ValueProof
from assay.records.prediction import Memory
from assay.records.run import LARGEST, RunResult, check_possible, parse_json
from assay.records.timing import Block, Quartiles
from support.comparisons import record

RESULT = record(seeds=1).cells[0].result
BLOCK = Block(steps=3, seconds=0.3, median_step_seconds=0.1, tokens=48)


def test_records_that_runs_write_are_possible() -> None:
    check_possible(record())
    proof = ValueProof(used=float("inf"), gradient_error=float("nan"))
    check_possible(RESULT.model_copy(update={"values": proof, "val_loss": 500.0, "val_perplexity": 1e217}))
    check_possible(RESULT.model_copy(update={"train_loss": -1e30, "extra": {"spread": float("inf")}}))


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"train_loss": float("nan")}, "train_loss is nan"),
        ({"val_loss": float("-inf")}, "val_loss is -inf"),
        ({"val_loss": 1e308}, r"val_loss is 1e\+308"),
        ({"val_perplexity": float("inf")}, "val_perplexity is inf"),
        ({"tokens": 10**400}, "tokens is 10+ … 0+"),
        ({"steps": -1}, "steps is -1"),
        ({"data_wait_share": 9.81}, "data_wait_share is 9.81"),
        ({"data_wait_share": -0.1}, "data_wait_share is -0.1"),
        ({"first_step_seconds": -1.0}, "first_step_seconds is -1.0"),
        ({"val_targets": -3}, "val_targets is -3"),
        ({"val_standard_error": -0.1}, "val_standard_error is -0.1"),
        ({"memory": Memory(process_peak_bytes=-5)}, "memory.process_peak_bytes is -5"),
        ({"memory": Memory(process_peak_bytes=10**30)}, "memory.process_peak_bytes is 10+"),
        ({"step_seconds": Quartiles(median=0.3, lower=0.1, upper=0.2, count=3)}, "step_seconds.median is 0.3"),
        ({"phase_seconds": {"steady": float("inf")}}, r"phase_seconds\.steady is inf"),
        (
            {"step_seconds": Quartiles(median=float("nan"), lower=0.1, upper=0.2, count=3)},
            r"step_seconds\.median is nan",
        ),
        ({"blocks": (BLOCK, BLOCK.model_copy(update={"seconds": LARGEST}))}, r"blocks\.1\.seconds is 1e\+100"),
    ],
)
def test_impossible_figures_are_named(changes: dict[str, object], name: str) -> None:
    with pytest.raises(ValueError, match=f"its figure {name}, which cannot be"):
        check_possible(RESULT.model_copy(update=changes))


def test_a_curve_with_one_such_figure_is_named() -> None:
    made = record(seeds=1)
    first, *rest = made.cells
    spoilt = first.curve.model_copy(update={"train_loss": (4.0, None, 1e200)})
    cells = (first.model_copy(update={"curve": spoilt}), *rest)
    with pytest.raises(ValueError, match=r"its figure cells\.0\.curve\.train_loss\.2 is 1e\+200"):
        check_possible(made.model_copy(update={"cells": cells}))


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_words_that_json_does_not_have_are_refused(word: str) -> None:
    with pytest.raises(ValueError, match="is no figure"):
        parse_json(f'{{"loss": [{word}]}}')
    assert parse_json(f'{{"loss": "{word}"}}') == {"loss": word}


def test_an_infinite_number_of_a_record_is_found_as_text_and_as_number() -> None:
    values = json.loads(RESULT.model_dump_json())
    for written in ('"Infinity"', "1e999"):
        text = json.dumps({**values, "val_loss": 0.125}).replace("0.125", written)
        with pytest.raises(ValueError, match="val_loss is inf"):
            check_possible(RunResult.model_validate_json(text))
