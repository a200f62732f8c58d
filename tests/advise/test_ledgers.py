"""Ledgers of a search are those of an estimate, also where the run itself has techniques that come later."""

from assay.advise.ledgers import Ledgers
from assay.advise.problem import Limits, Problem
from assay.api import configure
from assay.api.configuration import on_device
from assay.estimator.estimate import estimate
from assay.optimizations import resolve_run
from support.advice import SMALL


def test_an_element_comes_before_a_given_technique_that_is_applied_later() -> None:
    """A compiled graph has no product left for the loss in pieces to find."""
    given = ("optimizations=[sdpa_attention,compile]", "model.n_layer=3")
    run, machine = on_device(configure("demo", (*SMALL, *given)).with_vocabulary(), "a100")
    problem = Problem(resolve_run(run), machine, Limits(2**40, "tensors"))
    names = [str(one) for one in problem.found]
    ledgers = Ledgers(problem.run, machine, problem.found, machine.rates["cuda"], "tensors")
    for name in ("chunked_cross_entropy", "bf16_mixed", "fused_adamw"):
        whole = estimate(problem.resolved((names.index(name),)), machine).cost
        found = ledgers._known(0, (names.index(name),))
        assert [one.name for one in found.tape] == [one.name for one in whole.tape]
        assert found.optimizer.rule == whole.optimizer.rule
