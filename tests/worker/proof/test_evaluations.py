"""Held-out losses of a run are those of the baseline at the same weights: the last ones, and those of a drawn step."""

import random
from pathlib import Path
from typing import Any

import pytest

from assay.data import Prepared
from assay.optimizations import forget, search
from assay.records.run import RunResult
from assay.records.status import Status
from support.runs import run_folder
from support.workers import ended

pytestmark = pytest.mark.usefixtures("forked")

LYING = """
from dataclasses import replace
from assay.optimizations.{name} import {kind}

class Lying({kind}):
    def apply(self, program, run):
        after = super().apply(program, run)
        honest = after.evaluate
        calls = [0]

        def evaluate(step, batches):
            batches = list(batches)
            calls[0] += 1
            loss, targets = honest(step, batches)
            if {when}:
                loss -= 0.05 * targets
            return loss, targets

        return replace(after, evaluate=evaluate)
"""
WINDOWS = 4


def lying(
    place: Path, corpus: Prepared, when: str, name: str = "lion", kind: str = "Lion", **training: Any
) -> RunResult:
    (place / "extra").mkdir()
    (place / "extra" / "lying.py").write_text(LYING.format(name=name, kind=kind, when=when))
    added = search(place / "extra")
    try:
        values = {"steps": 8, "eval_batches": WINDOWS, **training}
        return ended(run_folder(place / "run", corpus, values, optimizations="lying"))
    finally:
        forget(added)


@pytest.mark.parametrize(
    ("name", "kind", "when"),
    [
        *(("lion", "Lion", when) for when in ("True", "calls[0] > 1", "calls[0] == 4")),
        ("bf16_mixed", "Bf16Mixed", "calls[0] == 4"),
        *(pytest.param("bf16_mixed", "Bf16Mixed", when, marks=pytest.mark.slow) for when in ("True", "calls[0] > 1")),
    ],
)
def test_a_loss_that_is_lower_is_seen_in_whatever_windows_it_is(
    corpus: Prepared, tmp_path: Path, when: str, name: str, kind: str
) -> None:
    result = lying(tmp_path, corpus, when, name, kind)
    assert result.status is Status.WRONG_VALUES
    assert (result.reason or "").startswith("the evaluation of group ")


def test_an_earlier_evaluation_is_drawn_from_the_seed(corpus: Prepared, tmp_path: Path) -> None:
    drawn = random.Random("evaluation that is checked, seed 0").choice(range(2, 12, 2))
    before = drawn // 2 - 1
    when = f"{before * WINDOWS} < calls[0] <= {(before + 1) * WINDOWS}"
    result = lying(tmp_path, corpus, when, steps=12, eval_interval=2)
    assert (result.status, result.steps) == (Status.WRONG_VALUES, drawn)
    assert f"in step {drawn}" in (result.reason or "")


@pytest.mark.parametrize(
    "name",
    [
        "lion",
        "bf16_mixed",
        *(
            pytest.param(one, marks=pytest.mark.slow)
            for one in ("sdpa_attention", "gradient_accumulation:micro_batches=2")
        ),
    ],
)
def test_honest_evaluations_are_right(corpus: Prepared, tmp_path: Path, name: str) -> None:
    training = {"steps": 12, "eval_interval": 4, "eval_batches": WINDOWS, "learning_rate": 0.03}
    result = ended(run_folder(tmp_path / "run", corpus, training, optimizations=name))
    assert result.status is Status.DONE
    assert result.values is not None
    assert result.values.evaluations == 2
