"""Frozen matrices in 4 bits a number, wrong.

Weights are rounded once, and never move. So nothing in a step would put right what was packed or is unpacked wrong, and
adapters learn beside any base.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.cost.rewrites.four_bits import BLOCK, LARGEST_BYTES, LEVELS
from assay.model.nf4 import Packing
from assay.step.program import Program
from optimizations.mutations.mutant import LAST, Break, Mutant, applied, replaced, rewritten, together

RUN = {"stack": "lora:base=nf4"}

_PACK, _UNPACK, _PAIRS = (f"assay.model.nf4:{one}" for one in ("_pack_into", "_unpack_into", "_pairs"))
_SHAPE, _FORWARD, _BACKWARD = (
    f"assay.model.nf4:{one}" for one in ("Packing.packed_shape", "UnpackedProduct.forward", "UnpackedProduct.backward")
)
_INT4 = tuple((code - 8) / 7 if code else -1.0 for code in range(16))
"""Evenly spaced levels."""
_UNPACKED = "ctx.packing.unpack(packed, gradient.dtype)"


def _in_backward(change: Callable[[Tensor], Tensor]) -> Break:
    """Have backward multiply by a changed matrix."""
    return rewritten(_BACKWARD, (_UNPACKED, f"change({_UNPACKED})"), change=change)


def _after_updates(change: Callable[[Tensor, Packing], Any]) -> Break:
    """Have `change` alter a packed matrix after late updates."""

    def altered(program: Program, run: Any, clock: Any) -> Program:
        honest = program.update

        @torch.no_grad()
        def update(step: Any) -> Any:
            norm = honest(step)
            for name, one in step.named_parameters():
                if clock.late and (packing := program.weights.packed.get(name)):
                    change(one, packing)
            return norm

        return replace(program, update=update)

    return applied("lora", altered, late=True)


def _rounded_anew(packed: Tensor, packing: Packing) -> None:
    packed.copy_(packing.pack(packing.unpack(packed) * 1.001))


def _unrounded(*, forward: bool) -> Break:
    """Keep the numbers beside what is packed, and multiply by them: in both directions, or in backward alone."""
    kept: dict[bytes, Tensor] = {}

    def break_it(patch: pytest.MonkeyPatch) -> None:
        pack, unpack = Packing.pack, Packing.unpack

        def keeping(self: Packing, values: Tensor) -> Tensor:
            packed = pack(self, values)
            kept[packed.numpy().tobytes()] = values.clone()
            return packed

        def given(self: Packing, packed: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
            unpack(self, packed, dtype)
            return kept[packed.detach().numpy().tobytes()].to(dtype)

        patch.setattr(Packing, "pack", keeping)
        if forward:
            patch.setattr(Packing, "unpack", given)
        else:
            rewritten(_BACKWARD, ("ctx.packing.unpack(", "given(ctx.packing, "), given=given)(patch)

    return break_it


def _kept_between_steps(patch: pytest.MonkeyPatch) -> None:
    honest, kept = Packing.unpack, dict[tuple[int, torch.dtype], Tensor]()

    def unpack(self: Packing, packed: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        key = packed.data_ptr(), dtype
        if key not in kept:
            kept[key] = honest(self, packed, dtype)
        return kept[key]

    patch.setattr(Packing, "unpack", unpack)


def _from_octets(blocks: Tensor, packed: Tensor) -> None:
    levels = torch.tensor(LEVELS)[packed[:, LARGEST_BYTES:].int()]
    blocks.copy_(levels * packed.view(torch.float32)[:, :1])


_CODES = "codes[:, ::2] * len(LEVELS) + codes[:, 1::2]"
_LARGEST = "packed.view(torch.float32)[:, :1]"

PACKED = (
    Mutant(
        "a code off by one",
        "One code of a matrix is that of the neighbouring level.",
        rewritten(_PACK, (_CODES, f"{_CODES}\n    packed[3, 10] ^= 1")),
        RUN,
    ),
    Mutant(
        "scale of the neighbour",
        "Blocks are unpacked with the scale of the block before.",
        rewritten(_UNPACK, (_LARGEST, f"{_LARGEST}.roll(1, 0)")),
        RUN,
    ),
    Mutant(
        "scale of the neighbour late",
        "Late in the run blocks are unpacked with the scale of the block before.",
        rewritten(_UNPACK, (_LARGEST, f"{_LARGEST}.roll(1, 0)"), late=True),
        RUN,
        late=True,
    ),
    Mutant(
        "packed weights updated",
        "Late in the run each update changes one code of each matrix.",
        _after_updates(lambda packed, _: packed[1, 20].bitwise_xor_(1)),
        RUN,
        late=True,
    ),
    Mutant(
        "base not packed",
        "The frozen matrices stay in float32.",
        replaced("assay.model.adapted_linear:pack_frozen", lambda part: {}),
        RUN,
    ),
    Mutant("kept between steps", "Matrices are unpacked once, and kept.", _kept_between_steps, RUN),
    Mutant(
        "kept for backward",
        "Forward saves the unpacked matrix for backward.",
        together(
            rewritten(_FORWARD, ("save_for_backward(packed)", "save_for_backward(whole)")),
            rewritten(_BACKWARD, (_UNPACKED, "packed")),
        ),
        RUN,
    ),
    Mutant(
        "codes exchanged in backward",
        "Backward takes the two codes of a byte in the other order.",
        _in_backward(lambda whole: whole.view(-1, 2).flip(1).view_as(whole)),
        RUN,
    ),
    Mutant(
        "largest of the matrix",
        "All blocks have the largest number of the whole matrix as their scale.",
        rewritten(_PACK, ("blocks.abs().amax(1, keepdim=True)", "blocks.abs().amax().expand(len(blocks), 1)")),
        RUN,
    ),
    Mutant(
        "levels evenly spaced",
        "The levels are those of 4-bit integers.",
        together(rewritten(_PACK, LEVELS=_INT4), rewritten(_PAIRS, ("@lru_cache(maxsize=4)\n", ""), LEVELS=_INT4)),
        RUN,
    ),
    Mutant(
        "base not rounded",
        "Products take the numbers before they were packed, which are kept beside.",
        _unrounded(forward=True),
        RUN,
    ),
    Mutant(
        "base not rounded in backward",
        "Backward takes the numbers before they were packed.",
        _unrounded(forward=False),
        RUN,
    ),
    Mutant(
        "rounded anew",
        "Late in the run each update packs a slightly larger matrix anew.",
        _after_updates(_rounded_anew),
        RUN,
        late=True,
    ),
    Mutant(
        "8 bits",
        "Each code takes a byte.",
        together(
            rewritten(_SHAPE, ("PACKED_BYTES", "LARGEST_BYTES + BLOCK"), BLOCK=BLOCK),
            rewritten(_PACK, (_CODES, "codes")),
            replaced(_UNPACK, _from_octets),
        ),
        RUN,
    ),
    Mutant(
        "scales in 16 bits",
        "The scales are rounded to bfloat16.",
        rewritten(_PACK, ("amax(1, keepdim=True)", "amax(1, keepdim=True).bfloat16().float()")),
        RUN,
    ),
    Mutant(
        "unpacked in 16 bits late",
        "In the last step matrices have the numbers of bfloat16.",
        rewritten(
            _UNPACK,
            ("blocks.copy_(", "blocks.copy_(torch.Tensor.bfloat16("),
            (_LARGEST + "))", _LARGEST + ")))"),
            late=True,
            since=LAST,
        ),
        RUN,
        late=True,
    ),
    Mutant(
        "last block left out",
        "The last block of each matrix is unpacked as zeros.",
        rewritten(_UNPACK, (_LARGEST, f"{_LARGEST} * (torch.arange(len(packed), 0, -1) > 1)[:, None]")),
        RUN,
    ),
)
