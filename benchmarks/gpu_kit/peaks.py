"""Memory of drawn steps: requested, allocated and reserved peaks, beside the requested one that the ledger predicts."""

from collections.abc import Callable, Mapping
from functools import partial

import torch
from taking import Given, Result, device

_COUNT, _FEW = 40, 3


def items(given: Given) -> Mapping[str, Callable[[], Result]]:
    """Steps by the number that they are drawn from."""
    return {str(number): partial(_peaks, number) for number in range(_FEW if given.tiny else _COUNT)}


def _peaks(number: int) -> Result:
    from absent_steps import peaks_of
    from assay.estimator import estimate
    from assay.hardware import detect
    from assay.training.loop import train_step
    from ledger_draws import drawn
    from support.steps import build_step

    if device().type != "cuda":
        return {"skipped": "a CPU has no caching allocator"}
    run = drawn(number)
    torch.manual_seed(0)
    step = build_step(run)
    found = peaks_of(lambda index: train_step(step, index))
    predicted = estimate(run, detect()).requested_bytes.high
    stack, model = "+".join(map(str, run.optimizations)), run.model.model_dump(exclude_defaults=True)
    return found | {"stack": stack, "model": model, "predicted": predicted}
