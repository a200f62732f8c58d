"""Every technique over ranks, alone and stacked, against one device: equal losses, norms, weights; and its proof.

More of the same, for whoever has the time, is in `test_more_equality`.
"""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from assay.config import Spec
from assay.hardware import Machine
from assay.optimizations import Conflict, Unavailable, catalogue, resolve
from assay.records.trace import Trace
from support.ranks import compute
from support.ranks.equality import (
    EXPERTS_EXACT,
    LOSSY,
    ON_FOUR,
    ON_TWO,
    STEPS,
    agree,
    alone_of,
    case,
    dtype_of,
    exact,
    same_weights,
)
from support.runs import ON_ONE_DEVICE, run_with
from support.steps import traced

CPU = Machine(processor="any", cores=2, memory_bytes=2**34)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Mapping[tuple[str, str], Any]:
    """Every stack on its ranks, and what it is held against: the same stack without what divides it."""
    wanted = {(stack, dtype_of(stack)): 4 if stack in ON_FOUR else 2 for stack in (*ON_TWO, *LOSSY, *ON_FOUR)}
    alone = sorted({(alone_of(stack), dtype) for stack, dtype in wanted})
    cases = [*(case(stack, 1, dtype) for stack, dtype in alone)]
    cases += [case(stack, ranks, dtype) for (stack, dtype), ranks in wanted.items()]
    return dict(zip([*alone, *wanted], compute(cases, tmp_path_factory.mktemp("ranks")), strict=True))


@pytest.mark.parametrize("stack", [*ON_TWO, *ON_FOUR])
def test_losses_and_norms_are_those_of_one_device(found: Mapping[tuple[str, str], Any], stack: str) -> None:
    here, there = (found[one, dtype_of(stack)] for one in (stack, alone_of(stack)))
    assert len(here["losses"]) == STEPS
    agree(here, there, 1e-12 if exact(stack) else 1e-5)


@pytest.mark.parametrize("stack", [stack for stack in (*ON_TWO, *ON_FOUR) if exact(stack)])
def test_final_weights_are_those_of_one_device(found: Mapping[tuple[str, str], Any], stack: str) -> None:
    same_weights(*(found[one, "float64"]["weights"] for one in (stack, alone_of(stack))))


@pytest.mark.parametrize("stack", LOSSY)
def test_bfloat16_stays_near(found: Mapping[tuple[str, str], Any], stack: str) -> None:
    here, there = (found[one, "float32"]["losses"] for one in (stack, alone_of(stack)))
    assert len(here) == STEPS
    assert here == pytest.approx(there, rel=2e-3)


@pytest.mark.parametrize("stack", [*ON_TWO, *ON_FOUR, *LOSSY])
def test_every_rank_proves_every_technique(found: Mapping[tuple[str, str], Any], stack: str) -> None:
    for rank in found[stack, dtype_of(stack)]["ranks"]:
        assert len(rank["evidence"]) == len(stack.split("+"))
        for evidence in rank["evidence"]:
            assert evidence["verdict"], evidence["observed"]


@pytest.mark.parametrize(
    ("name", "stack"), [("sequence_parallel", "tensor_parallel"), ("zero_optimizer", "data_parallel")]
)
def test_a_trace_without_its_operations_is_no_proof_of_it(
    found: Mapping[tuple[str, str], Any], name: str, stack: str
) -> None:
    seen = found[stack, dtype_of(stack)]["ranks"][0]["trace"]
    trace = Trace.model_validate_json(json.dumps({**seen, "operations": []}))
    evidence = resolve(Spec(name=name)).verify(trace, run_with())
    assert not evidence.verdict, evidence.observed


@pytest.mark.parametrize("name", [name for name in catalogue() if name not in ON_ONE_DEVICE])
def test_it_is_refuted_on_one_device(name: str) -> None:
    run = run_with()
    evidence = resolve(Spec(name=name)).verify(traced(run), run)
    assert not evidence.verdict, evidence.observed


@pytest.mark.parametrize("name", [name for name in catalogue() if name not in ON_ONE_DEVICE])
def test_every_technique_is_held_against_one_device(name: str) -> None:
    try:
        resolve(Spec(name=name)).check(run_with(), CPU)
    except Unavailable as reason:
        pytest.skip(str(reason))
    except Conflict:
        pass  # it is held against one device beside what it needs
    held = (*filter(exact, ON_TWO), *EXPERTS_EXACT)
    assert any(one.startswith(name) for stack in held for one in stack.split("+"))
