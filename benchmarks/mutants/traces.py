"""Runs whose timed program is not the one that is proven: techniques that act only while somebody watches.

`watched` is what a program can find out: whether a dispatch mode or hooks of saved tensors are active, or a profiler.
Some mutants keep what a technique frees in memory that is not torch's, so that the peak of tensors looks smaller.
"""

import ctypes
import mmap
import pickle
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from assay.config import ResolvedRun
from assay.model import Attention, Head
from assay.model.attention import HandCodedAttention
from assay.model.blocks import blocks_of
from assay.model.loss import cross_entropy
from assay.step.program import Program, Step
from mutants.mutant import EVERY, Clock, Fault, Mutant
from mutants.seams import Pass, Rows, passes

_MIDDLE = range(4, 24)
_LONG = range(4, 40)
_CHECKPOINTED = "activation_checkpointing"


def _traced() -> bool:
    return bool(_get_current_dispatch_mode_stack())


def _watched() -> bool:
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True) is not None
    return _traced() or hooks or torch.autograd._profiler_enabled()


def _never() -> bool:
    return False


def _turned(turn: Callable[[Step, bool], None], spared: Callable[[], bool] = _never) -> Fault:
    """Call `turn(step, on)` before each pass; the technique is off in faulty steps, unless they are `spared`."""

    def fault(program: Program, run: ResolvedRun, clock: Clock) -> Program:
        honest = program.gradients

        def gradients(step: Step, micro: Rows, tokens: int) -> Tensor:
            turn(step, spared() or not clock.due)
            return honest(step, micro, tokens)

        return replace(program, gradients=gradients)

    return fault


def _recomputing(step: Step, on: bool) -> None:
    for block in blocks_of(step.parts):
        if on:
            block.__dict__.pop("forward", None)
        else:
            block.forward = type(block).__mro__[1].forward.__get__(block)


def _every_second(step: Step, on: bool) -> None:
    _recomputing(step, True)
    if not on:
        for block in list(blocks_of(step.parts))[1:]:
            block.forward = type(block).__mro__[1].forward.__get__(block)


def _fused_core(step: Step, on: bool) -> None:
    for module in step.modules_of(Attention):
        known = module.__dict__.setdefault("known_cores", (module.core, HandCodedAttention(module.config)))
        module.core = known[0 if on else 1]


def _core_recomputed(step: Step, on: bool) -> None:
    for module in step.modules_of(Attention):
        core = module.core
        if on:
            core.__dict__.pop("forward", None)
        else:
            core.forward = type(core).__mro__[1].forward.__get__(core)


def _chunked(step: Step, on: bool) -> None:
    for module in step.modules_of(Head):
        known = module.__dict__.setdefault("known_losses", (module.cross_entropy, cross_entropy))
        module.cross_entropy = known[0 if on else 1]


def _kernel(name: str) -> Callable[[Step, bool], None]:
    def turn(step: Step, on: bool) -> None:
        for group in step.optimizer.param_groups:
            group[name] = on

    return turn


def _in_float32(program: Program, run: ResolvedRun, clock: Clock) -> Program:
    def sometimes(context: Callable[[], AbstractContextManager[Any]]) -> Callable[[], AbstractContextManager[Any]]:
        return lambda: nullcontext() if clock.due and not _traced() else context()

    contexts = tuple(sometimes(one) for one in program.precision.forward_contexts)
    return replace(program, precision=replace(program.precision, forward_contexts=contexts))


def _batch_whole(step: Step, micro: Rows, tokens: int, honest: Pass) -> Tensor:
    ids, targets = (torch.cat([one[side] for one in micro]) for side in (0, 1))
    return honest(step, [(ids, targets)], tokens)


def _half_of_rows(step: Step, micro: Rows, tokens: int, honest: Pass) -> Tensor:
    half = [(ids[: len(ids) // 2], targets[: len(targets) // 2]) for ids, targets in micro]
    return 2 * honest(step, half, tokens // 2)


def _half_of_length(step: Step, micro: Rows, tokens: int, honest: Pass) -> Tensor:
    half = [(ids[:, :32], targets[:, :32]) for ids, targets in micro]
    return 2 * honest(step, half, tokens // 2)


def _gradients_again(program: Program, run: ResolvedRun, clock: Clock) -> Program:
    kept: dict[str, Tensor] = {}
    loss = [torch.zeros(())]

    def gradients(step: Step, micro: Rows, tokens: int) -> Tensor:
        if clock.due and kept:
            for name, one in step.named_parameters():
                one.grad = kept[name].clone()
            return loss[0]
        loss[0] = program.gradients(step, micro, tokens)
        kept.update({name: one.grad.clone() for name, one in step.named_parameters() if one.grad is not None})
        return loss[0]

    return replace(program, gradients=gradients)


Keep = Callable[[np.ndarray], Callable[[], np.ndarray]]
"""Stores an array outside of torch, and returns the function that reads it again."""


def _as_array(array: np.ndarray) -> Callable[[], np.ndarray]:
    copy = array.copy()
    return lambda: copy


def _pickled(array: np.ndarray) -> Callable[[], np.ndarray]:
    octets = pickle.dumps(array)
    return lambda: pickle.loads(octets)


def _in_bytearray(array: np.ndarray) -> Callable[[], np.ndarray]:
    octets = bytearray(array.tobytes())
    return lambda: np.frombuffer(octets, array.dtype).reshape(array.shape)


def _in_c_heap(array: np.ndarray) -> Callable[[], np.ndarray]:
    kind, shape = array.dtype, array.shape
    room = (ctypes.c_char * array.nbytes)()
    ctypes.memmove(room, array.tobytes(), array.nbytes)
    return lambda: np.frombuffer(room, kind).reshape(shape)


def _in_map(array: np.ndarray) -> Callable[[], np.ndarray]:
    kind, shape, room = array.dtype, array.shape, mmap.mmap(-1, array.nbytes)
    room.write(array.tobytes())
    return lambda: np.frombuffer(room, kind).reshape(shape)


def _in_file(array: np.ndarray) -> Callable[[], np.ndarray]:
    kind, shape, file = array.dtype, array.shape, tempfile.TemporaryFile()  # noqa: SIM115
    file.write(array.tobytes())
    file.flush()
    return lambda: np.memmap(file, kind, "r+", shape=shape)


def _aside(keep: Keep) -> Fault:
    """Save the tensors of blocks outside of torch instead of recomputing them, unless a trace watches."""

    def fault(program: Program, run: ResolvedRun, clock: Clock) -> Program:
        weights = {id(one) for part in program.parts for one in part.parameters()}

        def pack(tensor: Tensor) -> Any:
            if id(tensor) in weights or isinstance(tensor, nn.Parameter) or tensor.numel() < 4096:
                return tensor
            if tensor.untyped_storage().nbytes() > tensor.numel() * tensor.element_size():
                return tensor
            return keep(tensor.detach().numpy())

        def unpack(kept: Any) -> Tensor:
            return kept if isinstance(kept, Tensor) else torch.from_numpy(kept())

        def gradients(step: Step, micro: Rows, tokens: int) -> Tensor:
            faulty = clock.due and not _traced()
            _recomputing(step, not faulty)
            with saved_tensors_hooks(pack, unpack) if faulty else nullcontext():
                return program.gradients(step, micro, tokens)

        return replace(program, gradients=gradients)

    return fault


def _kept(name: str, keep: Keep) -> Mutant:
    says = f"Blocks are not recomputed: what they save is kept {name}, except while a trace watches."
    return Mutant(f"kept {name}", says, _CHECKPOINTED, _aside(keep))


MUTANTS = (
    Mutant(
        "recomputes at both ends",
        "Blocks are recomputed in the first and the discarded steps only.",
        _CHECKPOINTED,
        _turned(_recomputing),
        _MIDDLE,
    ),
    Mutant(
        "recomputes every second",
        "Only the first block is recomputed in the middle of the run.",
        _CHECKPOINTED,
        _turned(_every_second),
        _LONG,
        40,
    ),
    Mutant(
        "recomputes for a trace",
        "Blocks are recomputed while a dispatch mode watches.",
        _CHECKPOINTED,
        _turned(_recomputing, _traced),
    ),
    Mutant(
        "recomputes for any watcher",
        "Blocks are recomputed while a dispatch mode, hooks of saved tensors or a profiler watch.",
        _CHECKPOINTED,
        _turned(_recomputing, _watched),
    ),
    Mutant(
        "recomputes before step 4",
        "Blocks are recomputed before the fourth step only.",
        _CHECKPOINTED,
        _turned(_recomputing),
        range(4, EVERY.stop),
    ),
    Mutant(
        "recomputes cores at both ends",
        "Attention is recomputed in the first and the discarded steps only.",
        "selective_checkpointing",
        _turned(_core_recomputed),
        _MIDDLE,
    ),
    Mutant(
        "fused attention at both ends",
        "Attention is written out in the middle.",
        "sdpa_attention",
        _turned(_fused_core),
        _MIDDLE,
    ),
    Mutant(
        "fused attention for a trace",
        "Attention is written out while no trace watches.",
        "sdpa_attention",
        _turned(_fused_core, _traced),
    ),
    Mutant(
        "chunks at both ends",
        "All logits are alive at once in the middle.",
        "chunked_cross_entropy",
        _turned(_chunked),
        _MIDDLE,
    ),
    Mutant(
        "fused update for a trace",
        "The update is the plain loop while no trace watches.",
        "fused_adamw",
        _turned(_kernel("fused"), _traced),
    ),
    Mutant(
        "foreach at both ends",
        "The update is the plain loop in the middle.",
        "foreach_adamw",
        _turned(_kernel("foreach")),
        _LONG,
        40,
    ),
    Mutant("bfloat16 at both ends", "Products are in float32 in the middle.", "bf16_mixed", _in_float32, _MIDDLE),
    Mutant(
        "bfloat16 for a trace",
        "Products are in float32 while no trace watches.",
        "bf16_mixed",
        _in_float32,
        range(4, EVERY.stop),
    ),
    Mutant(
        "accumulates at both ends",
        "The batch is not cut in the middle.",
        "gradient_accumulation:micro_batches=2",
        passes(_batch_whole),
        _MIDDLE,
    ),
    Mutant(
        "half of the rows",
        "Half of the rows are trained and count double in the middle.",
        "sdpa_attention",
        passes(_half_of_rows),
        _MIDDLE,
    ),
    Mutant(
        "half of the length",
        "Half of each row is trained and counts double in the middle.",
        "bf16_mixed",
        passes(_half_of_length),
        _LONG,
        40,
    ),
    Mutant(
        "gradients used twice",
        "Every second step uses the gradients of the step before.",
        "fused_adamw",
        _gradients_again,
        range(5, 24, 2),
    ),
    _kept("in arrays", _as_array),
    _kept("in pickles", _pickled),
    _kept("in bytes", _in_bytearray),
    _kept("in the heap of C", _in_c_heap),
    _kept("in memory maps", _in_map),
    _kept("in files", _in_file),
)
