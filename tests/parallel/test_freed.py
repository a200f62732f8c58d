"""A step over two ranks is freed with its objects, whichever technique divides it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from assay.config import Spec, validate
from assay.hardware import detect
from assay.optimizations import Unavailable, catalogue, resolve, resolve_run
from support.ranks import ATTEMPTS, compute
from support.ranks.equality import DEEP
from support.runs import ON_ONE_DEVICE

DIVIDING = [name for name in catalogue() if name not in ON_ONE_DEVICE]
SETTINGS: Mapping[str, tuple[str, Mapping[str, int]]] = {
    "sequence_parallel": ("sequence_parallel+tensor_parallel", {}),
    "expert_parallel": ("expert_parallel+data_parallel", {"n_expert": 4}),
}
"""Stack and changes of the model for a technique that cannot divide the model alone."""


def case(name: str) -> dict[str, Any]:
    stack, model = SETTINGS.get(name, (name, {}))
    run = {
        "model": {**DEEP, **model},
        "training": {"batch_size": 8, "steps": 2, "warmup_steps": 1},
        "device": "cpu",
        "ranks": 2,
        "optimizations": stack.split("+"),
    }
    return {"answered_by": "support.ranks.freed:answer", "run": run, "dtype": "float32"}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """Objects and bytes that every technique leaves, by technique; computed in one set of processes."""
    names = [name for name in DIVIDING if not unavailable(name)]
    return dict(zip(names, compute(list(map(case, names)), tmp_path_factory.mktemp("freed")), strict=True))


def unavailable(name: str) -> str:
    """Reason why this machine lacks a technique; empty if it has it."""
    try:
        resolve(Spec(name=name)).check(resolve_run(validate(case(name)["run"])), detect())
    except Unavailable as reason:
        return str(reason)
    return ""


@pytest.mark.slow
@pytest.mark.parametrize("name", DIVIDING)
def test_a_step_over_ranks_is_freed_with_its_objects(kept: Mapping[str, Any], name: str, tmp_path: Path) -> None:
    if reason := unavailable(name):
        pytest.skip(reason)
    found, nothing = kept[name], [[[], 0], [[], 0]]
    for _ in range(ATTEMPTS):  # what is kept stays whenever it is counted, and a thread of gloo's is late now and then
        if found == nothing:
            break
        found = compute([case(name)], tmp_path)[0]
    assert found == nothing
