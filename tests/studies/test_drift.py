"""The nudged baselines of a comparison: when they are run, and what they leave out."""

import pytest

from assay.config import Run, load
from assay.studies.drift import FIRST_STEPS, NUDGED, nudged_copies
from support.designs import design


def base(steps: int = FIRST_STEPS + 1, dropout: float = 0.0) -> Run:
    run = load("demo", [f"training.steps={steps}", f"model.dropout={dropout}", "training.target_loss=2.0"])
    return run.with_vocabulary()


def test_each_seed_has_a_nudged_baseline_that_is_measured_in_nothing_but_its_losses() -> None:
    cells = design(base(), ["chunked_cross_entropy"], 2)
    found = nudged_copies(cells, accelerated=False)
    assert [(one.treatment, one.seed, one.run.seed, one.run.nudge) for one in found] == [
        (NUDGED, 0, 0, 1),
        (NUDGED, 1, 1, 1),
    ]
    (training,) = {one.run.training for one in found}
    assert (training.steps, training.measure_memory, training.eval_interval) == (FIRST_STEPS + 1, False, 0)
    assert (training.target_loss, training.checkpoint_interval) == (None, 0)
    assert {one.run.optimizations for one in found} == {()}


def test_a_baseline_that_is_nudged_is_nudged_once_more() -> None:
    cells = design(base().model_copy(update={"nudge": 4}), ["chunked_cross_entropy"], 1)
    assert [one.run.nudge for one in nudged_copies(cells, accelerated=False)] == [5]


@pytest.mark.parametrize(
    ("run", "treatment", "accelerated", "wanted"),
    [
        (base(), "activation_checkpointing", False, False),
        (base(), "activation_checkpointing", True, True),
        (base(), "lion", False, False),
        (base(), "bf16_mixed+chunked_cross_entropy", False, False),
        (base(FIRST_STEPS), "chunked_cross_entropy", False, False),
        (base(FIRST_STEPS, dropout=0.1), "chunked_cross_entropy", False, True),
    ],
)
def test_it_is_run_only_where_a_bound_depends_on_it(run: Run, treatment: str, accelerated: bool, wanted: bool) -> None:
    assert bool(nudged_copies(design(run, [treatment], 1), accelerated)) is wanted
