"""Evidence on the loss: construction for exact techniques, measurements for lossy ones."""

from assay.advise.elements import Element, elements
from assay.advise.evidence import LossChange, keeps, numerics, reason
from assay.optimizations.base import Numerics
from support.advice import HERE, problem, small

LOSSES = {"bf16_mixed": LossChange(-0.001, 0.008, "somewhere"), "adamw_bf16_state": LossChange(0.0, 0.004, "there")}


def _named(*names: str) -> tuple[Element, ...]:
    found, _ = elements(small(), HERE)
    return tuple(one for one in found if str(one) in names)


def test_exact_and_reassociated_stacks_always_keep_the_loss() -> None:
    stack = _named("sdpa_attention", "activation_checkpointing")
    assert len(stack) == 2
    assert keeps(stack, {}, 0.0)
    assert numerics(stack) is Numerics.REASSOCIATED
    assert numerics(()) is Numerics.EXACT


def test_what_lossy_techniques_may_add_is_summed_and_unmeasured_ones_are_refused() -> None:
    stack = _named("bf16_mixed", "adamw_bf16_state")
    assert keeps(stack, LOSSES, 0.0121)
    assert not keeps(stack, LOSSES, 0.0119)
    assert not keeps(stack, {"bf16_mixed": LOSSES["bf16_mixed"]}, 0.5)
    assert keeps(stack, {}, None)


def test_reasons_name_the_measurement() -> None:
    assert reason("bf16_mixed", Numerics.LOSSY, LOSSES) == "measured −0.1 %, at most +0.8 %"
    assert reason("bf16_mixed", Numerics.LOSSY, {}).endswith("not measured")
    assert reason("sdpa_attention", Numerics.EXACT, {}) == "bit-equal to the baseline"


def test_a_limit_without_measurements_leaves_no_lossy_element() -> None:
    found = problem(loss_change=0.01)
    assert {str(one) for one in found.refused} >= {"bf16_mixed", "bf16_full"}
    assert all(numerics(found.named(stack)) is not Numerics.LOSSY for stack in found.roofline)
