"""Evidence on the loss: construction for exact techniques, measurements for lossy ones."""

from assay.advise.elements import Element, elements
from assay.advise.evidence import LossChange, keeps, must_earn, numerics, reason
from assay.optimizations import catalogue
from assay.optimizations.optimization import Numerics
from support.advice import HERE, problem, small

LOSSES = {
    "bf16_mixed": LossChange(-0.001, (-0.002, 0.008), "somewhere"),
    "adamw_bf16_state": LossChange(0.0, (-0.004, 0.004), "there"),
}


def _named(*names: str) -> tuple[Element, ...]:
    found, _ = elements(small(), HERE)
    return tuple(one for one in found if str(one) in names)


def test_exact_and_reassociated_stacks_always_keep_the_loss() -> None:
    stack = _named("sdpa_attention", "activation_checkpointing")
    assert len(stack) == 2
    assert keeps(stack, {}, 0.0)
    assert numerics(stack) is Numerics.REASSOCIATED
    assert numerics(()) is Numerics.EXACT


def test_errors_that_lossy_techniques_may_add_are_summed() -> None:
    stack = _named("bf16_mixed", "adamw_bf16_state")
    assert keeps(stack, LOSSES, 0.0121)
    assert not keeps(stack, LOSSES, 0.0119)
    assert keeps(stack, {}, None)


def test_a_change_that_is_surely_too_large_is_refused_and_a_wide_interval_decides_nothing() -> None:
    (mixed,) = _named("bf16_mixed")
    assert not keeps((mixed,), {"bf16_mixed": LossChange(0.03, (0.02, 0.04), "here")}, 0.01)
    wide = {"bf16_mixed": LossChange(0.03, (-0.1, 0.2), "here")}
    assert keeps((mixed,), wide, 0.01)
    assert reason(mixed.one, wide, 0.01).startswith("kept by models of up to 176 B")


def test_without_a_like_run_published_practice_decides() -> None:
    mixed, narrow = _named("bf16_mixed")[0], _named("fp8")
    assert keeps((mixed,), {}, 0.001)
    assert not keeps((mixed,), {}, 0.0)
    assert not any(keeps((one,), {}, 0.5) for one in narrow)


def test_reasons_name_the_measurement() -> None:
    mixed, sdpa = _named("bf16_mixed", "sdpa_attention")
    if mixed.one.name() == "sdpa_attention":
        mixed, sdpa = sdpa, mixed
    assert reason(mixed.one, LOSSES, 0.01) == "measured −0.1 %, at most +0.8 %"
    assert reason(mixed.one, {}, 0.01).startswith("kept by")
    assert "order of summation" in reason(sdpa.one, {}, 0.01) or "bit-equal" in reason(sdpa.one, {}, 0.01)


def test_weights_in_16_bits_are_not_advised() -> None:
    found = problem(loss_change=None)
    assert {str(one) for one, _ in found.unadvised} >= {"bf16_full", "fp16_full"}
    assert not {"bf16_full", "fp16_full"} & {str(one) for one in found.found}


def test_a_limit_leaves_out_what_neither_like_runs_nor_practice_keep() -> None:
    found = problem(loss_change=0.01)
    assert all(
        one.one.practice for stack in found.roofline for one in found.named(stack) if one.one.promised is Numerics.LOSSY
    )


def test_a_rounded_optimizer_state_must_earn_its_place() -> None:
    kinds = catalogue()
    earning = {name for name, kind in kinds.items() if must_earn(kind.model_validate({}))}
    assert earning == {"adamw_8bit", "adamw_bf16_state", "fp16_full"}
