"""The step whose optimizations are proven beside its anatomy."""

from assay.config import Spec
from assay.optimizations import optimizations_of
from assay.parallel.loss_scale import DynamicLossScale
from assay.worker.programs import anatomy as anatomy_worker
from support.runs import run_with
from support.steps import build_step


def test_the_proven_step_is_one_whose_update_is_not_skipped() -> None:
    run = run_with(Spec(name="fp16_mixed"), Spec(name="fused_adamw"))
    step = build_step(run)
    scale = step.program.precision.loss_scale
    assert isinstance(scale, DynamicLossScale)
    scale.value = start = 2.0**38
    proofs = anatomy_worker.proofs(step, run, optimizations_of(run))
    assert scale.value < start
    assert [one.verdict for one in proofs] == [True, True]
