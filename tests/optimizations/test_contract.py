"""What every optimization must do: predict, act, prove itself, and be refuted where it was not used."""

from contextlib import suppress
from functools import cache

import pytest
import torch

from assay.config import Spec
from assay.cost import Cost, baseline, replay
from assay.errors import UsageError
from assay.estimator import estimate
from assay.hardware import Machine, detect
from assay.optimizations import Numerics, Unpredicted, card, catalogue, resolve, trained_model
from assay.records.trace import Trace
from assay.step.program import Step
from assay.training.loop import train_step
from support.freed import kept_after
from support.runs import ONE_BY_ONE, run_with, specs_of
from support.steps import build_step, observed, plain

MACHINE = Machine(processor="any", cores=2, memory_bytes=2**34)
NAMES = ONE_BY_ONE


@pytest.fixture
def spec(name: str) -> Spec:
    """The optimization at its defaults; the test skips, saying so, where this machine or the model excludes it."""
    found = resolve(Spec(name=name)).spec()
    try:
        resolve(found).check(run_with(), detect())
    except UsageError as reason:
        pytest.skip(str(reason))
    return found


@cache
def _observed(name: str) -> tuple[list[float], Trace]:
    """Losses and a trace of a technique, trained once."""
    return observed(run_with(*specs_of((name,))), 5)


@pytest.mark.parametrize("name", NAMES)
def test_the_ledger_changes_and_is_never_negative(spec: Spec) -> None:
    before = estimate(run_with(), MACHINE)
    try:
        after = estimate(run_with(spec), MACHINE)
    except Unpredicted as reason:
        pytest.skip(str(reason))
    assert after.to_dict() != before.to_dict()
    assert all(moment.nbytes >= 0 for moment in after.timeline.instants)
    assert all(count > 0 for count in after.flops.values())
    assert after.timeline.saved_bytes >= 0


@pytest.mark.parametrize("name", NAMES)
def test_predicting_leaves_the_given_ledger_alone(spec: Spec) -> None:
    run = run_with(spec)
    ledger: Cost = baseline(run)
    before = replay(ledger)
    with suppress(Unpredicted):
        resolve(spec).predict(ledger, run, MACHINE)
    assert replay(ledger) == before


@pytest.mark.parametrize("name", NAMES)
def test_it_is_proven_where_it_was_applied(spec: Spec) -> None:
    run = run_with(spec)
    evidence = resolve(spec).verify(_observed(spec.name)[1], run)
    assert evidence.verdict, evidence.observed
    assert evidence.optimization == spec.name
    assert any(character.isdigit() for character in evidence.observed)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_refuted_where_it_was_not_applied(spec: Spec) -> None:
    run = run_with(spec)
    evidence = resolve(spec).verify(plain(run)[1], run)
    assert not evidence.verdict, evidence.observed


@pytest.mark.parametrize("name", NAMES)
def test_the_loss_keeps_to_the_declared_numerics(spec: Spec) -> None:
    alone, changed = plain(run_with())[0], _observed(spec.name)[0]
    numerics = catalogue()[spec.name].numerics
    if numerics is Numerics.EXACT:
        assert changed == alone
    elif numerics is Numerics.REASSOCIATED:
        assert changed == pytest.approx(alone, rel=1e-5)
    elif numerics is Numerics.LOSSY:
        assert changed != alone
        assert changed == pytest.approx(alone, rel=2e-2)
    else:
        assert changed != alone


@pytest.mark.parametrize("name", NAMES)
def test_it_renames_no_parameter(spec: Spec) -> None:
    configured = run_with(model=trained_model(run_with(spec)))
    names = [name for name, _ in build_step(configured).named_parameters()]
    found = [name for name, _ in build_step(run_with(spec)).named_parameters()]
    assert [name for name in found if name in names] == names


_KEPT_BY_COMPILED_CODE = 64
"""Bytes of constants that torch keeps for compiled code until the process ends."""


@pytest.mark.parametrize("name", NAMES)
def test_a_step_is_freed_with_its_objects(spec: Spec) -> None:
    def trained() -> Step:
        step = build_step(run_with(spec))
        train_step(step, 0), train_step(step, 1)
        return step

    kept, nbytes = kept_after(trained)
    assert kept == []
    assert nbytes <= _KEPT_BY_COMPILED_CODE


@pytest.mark.parametrize("name", NAMES)
def test_applying_only_describes(spec: Spec) -> None:
    from assay.training.build import baseline as program_of
    from support.random_data import RandomData

    run = run_with(spec)
    program = program_of(run, RandomData(run), torch.device("cpu"))  # type: ignore[arg-type]
    after = resolve(spec).apply(program, run)
    assert all(parameter.is_meta for part in after.parts for parameter in part.parameters())


@pytest.mark.parametrize("name", list(catalogue()))
def test_its_card_is_complete(name: str) -> None:
    one = card(catalogue()[name])
    assert one.saves
    assert one.pays
    assert one.sources
    assert len(one.about) > 80
    assert all(field.description for field in one.fields)
