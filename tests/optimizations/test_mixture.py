"""Every optimization on a mixture of experts: it is proven, and its loss is what its numerics promise."""

import pytest

from assay.config import ModelConfig, Spec
from assay.errors import UsageError
from assay.hardware import detect
from assay.optimizations import Numerics, catalogue, check, optimizations_of, resolve
from support.runs import ON_ONE_DEVICE, SHAPE, run_with
from support.steps import observed, plain, traced

MIXTURE = ModelConfig.model_validate({**SHAPE.model_dump(), "n_expert": 4})
VARIANTS = {
    "grouped": {},
    "loop": {"n_hidden": 20},
    "capacity": {"expert_capacity": 1.0},
}


QUICK = [("grouped", name) for name in ON_ONE_DEVICE]
QUICK += [(("loop", "capacity")[place % 2], name) for place, name in enumerate(ON_ONE_DEVICE)]
"""The fast suite has each technique in the first form, and in one of the two others."""


@pytest.mark.parametrize(
    ("variant", "name"),
    [
        pytest.param(variant, name, marks=() if (variant, name) in QUICK else pytest.mark.slow)
        for variant in VARIANTS
        for name in ON_ONE_DEVICE
    ],
)
def test_it_is_proven_and_trains_as_promised(variant: str, name: str) -> None:
    model = ModelConfig.model_validate({**MIXTURE.model_dump(), **VARIANTS[variant]})
    run = run_with(resolve(Spec(name=name)).spec(), model=model)
    try:
        check(run, detect())
    except UsageError as reason:
        pytest.skip(str(reason))
    found, trace = observed(run)
    for optimization in optimizations_of(run):
        evidence = optimization.verify(trace, run)
        assert evidence.verdict, evidence.observed
    numerics = catalogue()[name].numerics
    if numerics is Numerics.EXACT:
        assert found == plain(run)[0][:3]
    elif numerics is not Numerics.DIFFERENT_TRAINING:
        # A micro-batch has a capacity and a balance of its own, which moves gradients a little.
        assert found == pytest.approx(plain(run)[0][:3], rel=2e-2)


def test_only_the_router_may_stay_in_float32() -> None:
    bf16 = Spec(name="bf16_mixed")
    run = run_with(bf16, model=MIXTURE)
    trace = traced(run)
    assert "and 12 of routers in float32" in resolve(bf16).verify(trace, run).observed
    lifted = tuple(
        one.model_copy(update={"dtype": "float32"}) if "_grouped_mm" in one.name else one for one in trace.operations
    )
    assert not resolve(bf16).verify(trace.model_copy(update={"operations": lifted}), run).verdict
    dense = run_with(bf16)
    assert not resolve(bf16).verify(trace, dense).verdict
