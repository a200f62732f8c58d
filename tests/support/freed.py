"""Objects of a step that outlive it, by weak references and by the bytes of tensors."""

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch

from assay.instruments.memory.memory_pass import live_tensor_bytes
from assay.step.program import Step
from support.steps import CPU, forget_tables


def references(step: Step) -> list["weakref.ref[Any]"]:
    """Weak references to a step, its modules, its parameters, its optimizer and its optimizer's state."""
    return [weakref.ref(one) for one in _objects(step)]


def _objects(step: Step) -> Iterator[Any]:
    yield from (step, step.program, step.optimizer)
    for part in step.program.parts:
        yield from part.modules()
    for _, parameter in (*step.named_parameters(), *step.optimized):
        yield parameter
    for key, state in step.optimizer.state.items():
        yield from [key] if isinstance(key, torch.Tensor) else []
        yield from (one for one in (state.values() if isinstance(state, dict) else ()) if isinstance(one, torch.Tensor))


def kept_after(make: Callable[[], Step], device: torch.device = CPU) -> tuple[list[str], int]:
    """Return the types of objects that stay alive after a step is deleted, and the bytes of tensors that do."""
    forget_tables()
    gc.collect()
    before = live_tensor_bytes(device)
    followed = references(make())
    gc.collect()
    forget_tables()
    gc.collect()
    kept = [type(one).__name__ for reference in followed if (one := reference()) is not None]
    return kept, live_tensor_bytes(device) - before
