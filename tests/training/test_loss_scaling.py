"""Training under a loss scale: an overflow costs an update; one that no scale heals ends the run and is named."""

from pathlib import Path

import pytest
import torch

from assay.config import Run
from assay.data import Prepared
from assay.optimizations.fp16_mixed import Fp16Mixed
from assay.parallel.loss_scale import DynamicLossScale
from assay.step.program import Step
from assay.training.build import baseline, build
from assay.training.stops import Diverged
from support.runs import tiny
from support.steps import CPU, Watcher, loop_of


def scaled(run: Run, corpus: Prepared, value: float) -> Step:
    step = build(Fp16Mixed().apply(baseline(run, corpus, CPU), run))
    assert isinstance(step.program.precision.loss_scale, DynamicLossScale)
    step.program.precision.loss_scale.value = value
    return step


def test_an_overflow_skips_the_update_and_halves_the_scale(corpus: Prepared, tmp_path: Path) -> None:
    run = tiny()
    step = scaled(run, corpus, 2.0**40)
    loop = loop_of(run, step, corpus, tmp_path)
    before = [parameter.clone() for _, parameter in step.named_parameters()]
    loop.advance(2)
    assert all(torch.equal(one, now) for one, (_, now) in zip(before, step.named_parameters(), strict=True))
    assert isinstance(loop.observer, Watcher)
    assert [(one.skipped, one.finite, one.loss_scale) for one in loop.observer.records] == [
        (True, True, 2.0**40),
        (True, True, 2.0**39),
    ]
    assert loop.position.skipped_steps == 2


def test_an_evaluation_after_skipped_updates_names_what_overflows_and_the_update_before(
    corpus: Prepared, tmp_path: Path
) -> None:
    run = tiny({"eval_batches": 1})
    step = scaled(run, corpus, 2.0**10)
    loop = loop_of(run, step, corpus, tmp_path)
    loop.advance(1)
    with torch.no_grad():
        dict(step.named_parameters())["blocks.1.mlp.up.weight"].fill_(1e5)
    loop.advance(3)
    assert loop.position.skipped_steps == 3
    with pytest.raises(Diverged, match=r"the output of blocks\.1\.mlp\.up is the first .* after the update of step 0"):
        loop.evaluate()


def test_an_overflow_that_no_scale_heals_ends_the_run_and_is_named(corpus: Prepared, tmp_path: Path) -> None:
    run = tiny()
    step = scaled(run, corpus, 4.0)
    with torch.no_grad():
        dict(step.named_parameters())["blocks.1.mlp.up.weight"].fill_(1e5)  # finite, and too large for float16
    with pytest.raises(Diverged, match=r"at step 2: the output of blocks\.1\.mlp\.up is the first"):
        loop_of(run, step, corpus, tmp_path).advance(5)
