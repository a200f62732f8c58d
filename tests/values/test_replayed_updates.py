"""Which updates are replayed, and what explains one that is mostly rounding: a gradient that is off by a roundoff."""

from collections import defaultdict
from pathlib import Path

import pytest
import torch

from assay.config import ResolvedRun
from assay.config.run import Spec
from assay.optimizations import expected_of
from assay.reference.expected import REASSOCIATED
from assay.reference.rules import AdamWRule
from assay.values import nearness
from assay.values.recorded import Recorded
from assay.values.recorder import Part
from assay.values.replayed_updates import judged_updates, off_by_a_roundoff
from support.random_data import RandomData
from support.runs import SHAPE, run_with
from support.steps import build_step
from values.recording import record_steps

RULE = AdamWRule(weight_decay=0.1, beta1=0.9, beta2=0.99, epsilon=1e-8, coupled=True)


def test_no_element_stays_as_it_is() -> None:
    gradient = torch.randn(64, 64)
    moved = (off_by_a_roundoff(gradient, seed=0) / gradient.double() - 1).abs()
    torch.testing.assert_close(moved, torch.full_like(moved, 2**-24), rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("seed", range(40))
def test_one_element_that_decay_cancels_is_no_failure(seed: int) -> None:
    generator, rate = torch.Generator().manual_seed(seed), 0.002
    weight = torch.nn.Parameter(0.02 * torch.randn(96, 32, generator=generator))
    gradient = 1e-3 * torch.randn(96, 32, generator=generator)
    gradient[5, 7] = -0.1 * weight.detach()[5, 7] * (1 + 3e-7)
    weight.grad, before = gradient, weight.detach().clone()
    torch.optim.Adam([weight], lr=rate, betas=(0.9, 0.99), weight_decay=0.1).step()
    off = off_by_a_roundoff(gradient, seed)
    replayed, shaken = (RULE.update("weight", before, one, {}, rate) for one in (gradient, off))
    found = nearness.update(0, "weight", before, weight.detach(), replayed, REASSOCIATED, rounded=False, shaken=shaken)
    assert not found.failed


def judged_steps(run: ResolvedRun, folder: Path, part: Part, first: int = 0) -> list[set[str]]:
    """Hidden matrices whose updates are judged in each of two or three recorded steps of a part of a run."""
    expected = expected_of(run)
    record_steps(build_step(run, RandomData(run)), run, folder, steps=2 if part == "end" else 3, first=first, part=part)
    found: dict[int, set[str]] = defaultdict(set)
    for one in judged_updates(Recorded(folder), run, expected):
        if one.what == "update" and one.name.endswith("weight") and "norm" not in one.name and "embed" not in one.name:
            assert not one.failed
            found[one.step].add(one.name)
    return [found[step] for step in sorted(found)]


def test_where_updates_outweigh_a_step_beginning_and_end_replay_one_half_each(tmp_path: Path) -> None:
    run = run_with(Spec(name="muon"))
    first, *later = judged_steps(run, tmp_path / "beginning", "beginning")
    assert len(first) == 4 * SHAPE.n_layer
    assert later == [later[0]] * 2
    assert len(later[0]) == len(first) // 2
    assert judged_steps(run, tmp_path / "end", "end", 3) == [first - later[0]] * 2
    assert judged_steps(run, tmp_path / "middle", "middle", 2) == [first] * 3


@pytest.mark.parametrize(("stack", "rows"), [("muon", 64), ("lion", 4)])
def test_all_other_updates_are_replayed_in_all_recorded_steps(tmp_path: Path, stack: str, rows: int) -> None:
    run = run_with(Spec(name=stack))
    run = run.model_copy(update={"training": run.training.model_copy(update={"batch_size": rows})})
    for part in ("beginning", "end"):
        assert {len(one) for one in judged_steps(run, tmp_path / part, part)} == {4 * SHAPE.n_layer}
