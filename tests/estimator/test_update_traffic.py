"""What the step's time is predicted from in the update, against the operators that a traced update ran."""

import pytest

from assay.config import Spec
from assay.estimator import estimate
from assay.hardware import Machine
from assay.optimizations import catalogue
from support.runs import UNTIED, run_with
from support.steps import traced

CPU = Machine(processor="any", cores=2, memory_bytes=2**34)
OPTIMIZERS = [name for name, kind in catalogue().items() if "optimizer" in kind.claims and name != "adamw_8bit"]
"""The one left out is compiled, and its kernels are no operators."""
SCALARS = ("aten._local_scalar_dense", "aten.stack")
"""Which read and write a number."""


@pytest.mark.parametrize(
    "text", ["", *OPTIMIZERS, "sgd:nesterov=true", "sgd:momentum=0", "bf16_full"], ids=lambda text: text or "adamw"
)
def test_an_update_reads_and_writes_what_is_predicted(text: str) -> None:
    run = run_with(*(Spec.parse_stack(text) if text else ()), model=UNTIED)
    cost, trace = estimate(run, CPU).cost, traced(run)
    update = [one for one in trace.operations if one.phase == "update" and one.operation_class != "contraction"]
    moved = sum(one.bytes for one in update if one.name not in SCALARS)
    calls = sum(one.count for one in update if one.bytes and one.name not in SCALARS)
    if calls < len(cost.updated):
        pytest.skip("over lists or in one kernel, where operators do not tell what is read")
    predicted = cost.optimizer.rule.traffic(cost.updated)
    # The norm reads every gradient once before.
    assert predicted.nbytes == pytest.approx(moved - cost.parameter_bytes, rel=0.03)
    assert predicted.launches == pytest.approx(calls, rel=0.1)


def test_over_lists_and_in_one_kernel_few_operators_run() -> None:
    calls = {}
    for name in ("", "foreach_adamw", "fused_adamw"):
        run = run_with(*(Spec.parse_stack(name) if name else ()))
        cost = estimate(run, CPU).cost
        calls[name] = (cost.optimizer.rule.traffic(cost.updated), traced(run))
    plain, _ = calls[""]
    for name in ("foreach_adamw", "fused_adamw"):
        predicted, trace = calls[name]
        ran = sum(one.count for one in trace.operations if one.phase == "update" and one.name not in SCALARS)
        assert predicted.launches <= ran < 0.3 * plain.launches
        assert predicted.nbytes <= plain.nbytes
