"""Compare a checkpoint's files with the live state of a run, bit for bit.

Live tensors are read from the parameters and the optimizer, not by the functions that save and load. An optimizer that
reports other state than it uses is thus found, and so is a state that changes while it is loaded. Each rank compares
its shards. Tensors are mapped from the file one after the other, so no second copy of the weights is made.
"""

import json
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from assay.model.weights import WEIGHTS
from assay.parallel.dtensor import is_spread, local, shard_like
from assay.parallel.process_rank import Ranks
from assay.step.program import Step
from assay.training.checkpoints.state import stateful_parts

OPTIMIZER = "optimizer.safetensors"

BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integers of each width in bytes, as which tensors are compared, digested and written: a NaN then equals itself."""

Entries = Iterator[tuple[str, str, Any]]
"""(name in the file, name for a person, value)."""


@torch.no_grad()
def difference(place: Path, plain: Mapping[str, Any], step: Step, ranks: Ranks) -> str:
    """Return the first value that differs between the checkpoint in `place` and this rank; empty if none does.

    `plain` are the checkpoint's values of `Program.stateful` that are no tensors.
    """
    now, tensors = stateful_parts(step.program.stateful)
    changed = [entry for entry, values in now.items() if _as_json(values) != _as_json(plain.get(entry))]
    if changed:
        return f"the state of {changed[0]}"
    others: Entries = ((name, name, one) for name, one in tensors.items())
    optimized = chain(_state(step), others)
    return _in_file(place / WEIGHTS, _weights(step), step, ranks) or _in_file(place / OPTIMIZER, optimized, step, ranks)


def _as_json(values: Any) -> Any:
    return json.loads(json.dumps(values))


def _weights(step: Step) -> Entries:
    """Every parameter here by its name in a checkpoint; copies of a tied weight are entries of their own."""
    for name, parameter in step.named_parameters():
        yield step.stored_name(name), name, step.numbers_of(name, parameter)


def _state(step: Step) -> Entries:
    """Every entry of the optimizer's state; a quantized one as its parts."""
    names = {id(one): step.stored_name(name) for name, one in step.optimized}
    for parameter, entries in step.optimizer.state.items():
        name = names[id(parameter)]
        for key, value in entries.items():
            parts = {key: value}
            if isinstance(value, Tensor) and is_traceable_wrapper_subclass(value) and not is_spread(value):
                parts = {f"{key}_{part}": getattr(value, part) for part in value.__tensor_flatten__()[0]}
            for part, one in parts.items():
                yield f"state.{name}.{part}", f"the optimizer's {part} of {name}", one


def _in_file(path: Path, live: Entries, step: Step, ranks: Ranks) -> str:
    from safetensors import safe_open  # a run without checkpoints needs no such package

    seen = set()
    with safe_open(path, framework="pt") as file:
        stored = set(file.keys())
        for key, name, value in live:
            seen.add(key)
            if key not in stored or not _equal(
                value, file.get_tensor(key), step.program.weights.rows_at_rest.get(_owner(key))
            ):
                return name
    here = {_owner(key) for key in seen}
    left = sorted(key for key in stored - seen if ranks.world == 1 or _owner(key) in here)
    return left[0] if left else ""


def _owner(key: str) -> str:
    """Name of the parameter to which an entry of a file belongs."""
    return key.removeprefix("state.").rpartition(".")[0] if key.startswith("state.") else key


def _equal(live: Any, stored: Tensor, rows: int | None) -> bool:
    """True if a live value has the bits of the stored one; rows that a checkpoint leaves out must be zero."""
    if not isinstance(live, Tensor):
        return stored.numel() == 1 and float(live) == float(stored)
    if stored.numel() == live.numel() == 1 and stored.ndim != live.ndim:
        stored = stored.reshape(live.shape)  # several ranks write a scalar as a vector
    if (
        rows is not None
        and stored.ndim
        and len(stored) == rows
        and stored.shape[1:] == live.shape[1:]
        and len(live) > rows
    ):
        stored = torch.cat([stored, stored.new_zeros(len(live) - rows, *live.shape[1:])])
    if stored.shape != live.shape:
        return False
    if live.numel() == 1 and live.dtype != stored.dtype:
        return float(live) == float(stored)  # a number is stored in float64
    return _same_bits(local(live.detach()), shard_like(live, stored))


def _same_bits(one: Tensor, other: Tensor) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    bits = BITS[one.element_size()]
    return torch.equal(*(piece.cpu().contiguous().view(-1).view(bits) for piece in (one, other)))
