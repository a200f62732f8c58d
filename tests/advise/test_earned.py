"""A technique that rounds the optimizer's state is advised if nothing fits without it, or for a sure gain of time."""

from collections.abc import Mapping

import pytest

from assay.advise.ledgers import Positions
from assay.advise.problem import Limits, Problem, Ranking
from assay.api import configure, recommend
from assay.api.configuration import on_device
from assay.config import ResolvedRun
from assay.hardware import Machine
from assay.optimizations import resolve_run


def _asked(*changes: str) -> tuple[ResolvedRun, Machine]:
    words = ("model.n_layer=5", "model.n_embd=256", "model.n_head=4", "training.batch_size=8", *changes)
    run, machine = on_device(configure("demo", words).with_vocabulary(), "a100-40gb")
    return resolve_run(run), machine


class _Timed(Problem):
    """A problem whose times are those of two elements: fused AdamW, and AdamW in 8 bits."""

    eight: float = 1.0

    @property
    def roofline(self) -> Mapping[Positions, float]:  # type: ignore[override]
        place = {str(one): i for i, one in enumerate(self.found)}
        return {(): 2.0, (place["fused_adamw"],): 1.0, (place["adamw_8bit"],): self.eight}


def _ranked(eight: float, budget: int = 40 * 10**9) -> tuple[str, tuple[str, ...]]:
    run, machine = _asked()
    problem = _Timed(run, machine, Limits(budget, "device", 0.01))
    problem.eight = eight
    found: Ranking = problem.rank(machine)
    return "+".join(map(str, problem.named(found.best.stack))), tuple(str(problem.found[i]) for i in found.unearned)


def test_a_gain_within_the_margin_does_not_earn_it() -> None:
    assert _ranked(0.93) == ("fused_adamw", ("adamw_8bit",))
    assert _ranked(0.61) == ("fused_adamw", ("adamw_8bit",))


def test_a_gain_beyond_the_margin_earns_it() -> None:
    assert _ranked(0.59) == ("adamw_8bit", ())


def test_it_is_advised_if_nothing_else_fits() -> None:
    run, machine = _asked()
    problem = _Timed(run, machine, Limits(40 * 10**9, "device", 0.01))
    needs = {str(one): problem.need((i,)) or 0 for i, one in enumerate(problem.found)}
    assert needs["adamw_8bit"] < needs["fused_adamw"] - 1
    assert _ranked(0.93, needs["fused_adamw"] - 1) == ("adamw_8bit", ())


@pytest.mark.slow
def test_gpt2_on_a_large_gpu_is_advised_plain_fused_adamw() -> None:
    found = recommend("gpt2-124m", device="a100-40gb")
    assert "fused_adamw" in found.recommended.title.split("+")
    assert "adamw_8bit" not in found.recommended.title
