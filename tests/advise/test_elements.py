"""Compatible stacks by masks are those that `optimizations.check` accepts, one by one."""

import random

import pytest

from assay.advise.elements import Compatible, elements, with_stack
from assay.errors import UsageError
from assay.hardware import Machine
from assay.optimizations import check
from support.advice import HERE, THERE, small


@pytest.mark.parametrize(("machine", "device"), [(HERE, "cpu"), (THERE, "cuda")])
@pytest.mark.parametrize("changes", [(), ("optimizations=sdpa_attention+fp16_mixed",), ("model.n_expert=4",)])
def test_masks_agree_with_the_check_of_each_stack(machine: Machine, device: str, changes: tuple[str, ...]) -> None:
    run = small(*changes).model_copy(update={"device": device})
    found, _ = elements(run, machine)
    compatible = set(Compatible(run, machine, found).stacks())
    chosen, pool = random.Random(7), sorted(compatible)
    tried = chosen.sample(pool, min(len(pool), 60))
    # Pairs are tried too, because a random larger stack is rarely compatible.
    tried += [(i, j) for i in range(len(found)) for j in range(i + 1, len(found))]
    for stack in tried:
        assert (stack in compatible) == _accepted(run, machine, tuple(found[i] for i in stack)), stack


def _accepted(run: object, machine: Machine, stack: tuple[object, ...]) -> bool:
    try:
        check(with_stack(run, stack), machine)  # type: ignore[arg-type]
    except UsageError:
        return False
    return True


def test_techniques_that_train_differently_are_apart_and_parameters_are_those_that_techniques_declare() -> None:
    found, different = elements(small(), HERE)
    names = [str(one) for one in found]
    assert {"lion", "smaller_batch"} <= {str(one) for one in different}
    assert "lion" not in names
    assert [one for one in names if one.startswith("gradient")] == [
        "gradient_accumulation:micro_batches=2",
        "gradient_accumulation:micro_batches=4",
    ]
    assert {"selective_checkpointing", "selective_checkpointing:policy=matmuls"} <= set(names)


def test_techniques_of_the_configuration_stay_and_are_no_elements() -> None:
    found, _ = elements(small("optimizations=sdpa_attention"), HERE)
    assert "sdpa_attention" not in [str(one) for one in found]
