"""Every pair: whatever the order of listing, the prediction, the training and the proofs are the same."""

import pytest

from assay.config import Spec
from assay.errors import UsageError
from assay.hardware import Machine, detect
from assay.optimizations import Numerics, catalogue, check, optimizations_of, resolve
from optimizations.laboratory import PAIRS, losses, predicted, run_with, traced

MACHINE = Machine(processor="any", cores=2, memory_bytes=2**34)


@pytest.fixture
def pair(names: tuple[str, str]) -> tuple[Spec, Spec]:
    """Both at their defaults; the test skips, saying so, where they are refused here."""
    first, second = (resolve(Spec(name=name)).spec() for name in names)
    try:
        check(run_with(first, second), detect())
    except UsageError as reason:
        pytest.skip(str(reason))
    return first, second


@pytest.mark.parametrize("names", PAIRS, ids="+".join)
def test_the_order_of_listing_does_not_matter(pair: tuple[Spec, Spec]) -> None:
    first, second = pair
    there, back = run_with(first, second), run_with(second, first)
    assert optimizations_of(there) == optimizations_of(back)
    assert predicted(there, MACHINE) == predicted(back, MACHINE)
    assert losses(there, 2) == losses(back, 2)


@pytest.mark.parametrize("names", PAIRS, ids="+".join)
def test_both_are_proven_together(pair: tuple[Spec, Spec]) -> None:
    run = run_with(*pair)
    trace = traced(run)
    for optimization in optimizations_of(run):
        evidence = optimization.verify(trace, run)
        assert evidence.verdict, evidence.observed


@pytest.mark.parametrize("names", PAIRS, ids="+".join)
def test_the_loss_keeps_to_the_looser_of_both_numerics(pair: tuple[Spec, Spec]) -> None:
    numerics = [catalogue()[spec.name].numerics for spec in pair]
    if Numerics.DIFFERENT_TRAINING in numerics:
        pytest.skip("one of them trains differently by design")
    tolerance = 2e-2 if Numerics.LOSSY in numerics else 1e-5
    assert losses(run_with(*pair)) == pytest.approx(losses(run_with()), rel=tolerance)
