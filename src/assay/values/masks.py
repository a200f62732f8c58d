"""Dropout masks of recorded steps: kept as bits, and given to references that would draw others.

On CUDA a mask depends on the dtype of what is dropped. A thread draws 16 bytes of it, which are 2 elements in float64,
4 in float32 and 8 in 16 bits (torch's aten/src/ATen/native/cuda/Dropout.cu). So a reference that starts from the run's
random state draws another mask. A CPU draws equal masks in every dtype, and its references draw them again.

Masks come in the order of the forward. Those of a recomputation in backward are not kept. Unfused dropout returns its
mask. Flash attention shows it when it is called again from the same random state: an element that was dropped has a
negative sign. The memory-efficient kernel's mask follows from its seed and offset. Compiled code, captured graphs and
cuDNN's attention show none (`Expected.shows_masks`), so their gradients are compared without dropout.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from assay.instruments.step_counters import DRAWN_ON_CPU, DROPOUT_OF_GPU, drawn_mask, half_again

if TYPE_CHECKING:
    from assay.config import ResolvedRun
    from assay.reference.expected import Expected

_FLASH = torch.ops.aten._scaled_dot_product_flash_attention.default
_EFFICIENT = torch.ops.aten._scaled_dot_product_efficient_attention.default
_DROPOUT_ARGUMENT = {_FLASH: 3, _EFFICIENT: 5}
_CAUSAL_ARGUMENT = {_FLASH: 4, _EFFICIENT: 6}
_BITS = 8
"""Bits of a byte."""

Source = Literal["state", "kept", "none"]


class MasksDiffer(ValueError):
    """A reference needs another number of masks than the run drew, or masks of other shapes."""


@dataclass(frozen=True)
class Noise:
    """All chance of a step."""

    states: dict[str, Tensor]
    """State of each random generator before the step, by device."""
    masks: Sequence[Tensor] | None = None
    """Masks of the forward, in order, true where an element was kept; None: a reference draws them from `states`."""


@dataclass(frozen=True)
class MaskCount:
    """Elements of the masks that were kept in one step."""

    step: int
    elements: int
    zeros: int
    """Elements that were dropped."""
    by_flash: int
    """Elements of the masks of flash attention, which has a probability of its own."""
    half_again: int
    """Masks whose first half of every eight elements is the second half of the mask before."""

    def due(self, p: float) -> float:
        """Return how many elements are dropped on average at a dropout of `p`."""
        return p * (self.elements - self.by_flash) + rate_of_flash(p) * self.by_flash


def source_of_masks(run: "ResolvedRun", expected: "Expected", device: torch.device) -> Source:
    """Return where a reference has the masks of a run from; `none` if both are compared without dropout."""
    if run.model.dropout == 0:
        return "state"
    if not expected.same_noise:
        return "none"
    if not depend_on_dtype(device):
        return "state"
    return "kept" if expected.shows_masks else "none"


def depend_on_dtype(device: torch.device) -> bool:
    """True if masks that are drawn from one random state in two dtypes are not the same."""
    return device.type == "cuda"


class MaskKeeper(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Calls `keep` with each mask that is drawn in it, a tensor of bools; `count` has the fields of a `MaskCount`."""

    def __init__(self, keep: Callable[[Tensor], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = {"elements": 0, "zeros": 0, "by_flash": 0, "half_again": 0}
        self._keep = keep
        self._before: Tensor | None = None

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        fused = func in _DROPOUT_ARGUMENT and _given(args, _DROPOUT_ARGUMENT[func], 0.0) > 0
        state = torch.cuda.get_rng_state(args[0].device) if fused and func is _FLASH else None
        result = func(*args, **(kwargs or {}))
        if torch._C._current_graph_task_id() != -1:  # a recomputation draws the forward's masks again
            return result
        with _disable_current_modes(), torch.no_grad():
            if fused:
                mask = _flash(state, args, kwargs) if state is not None else _efficient(args, result)
                self._kept(mask, causal=_given(args, _CAUSAL_ARGUMENT[func], False), flash=func is _FLASH)
            elif (drawn := drawn_mask(func, args, result)) is not None:
                self._kept(drawn.ne(0), narrow=drawn.dtype.itemsize == 2 or args[0].dtype.itemsize == 2)
        return result

    def _kept(self, mask: Tensor, *, causal: bool = False, flash: bool = False, narrow: bool = False) -> None:
        lost = (~mask).tril() if causal else ~mask  # what no query sees has no mask
        seen = torch.ones(mask.shape[-2:]).tril().mean().item() if causal else 1.0
        elements = round(mask.numel() * seen)
        self.count["elements"] += elements
        self.count["by_flash"] += elements if flash else 0
        self.count["zeros"] += int(lost.sum())
        if narrow and self._before is not None:
            self.count["half_again"] += half_again(self._before, mask)
        self._before = mask if narrow else None
        self._keep(mask)


def _given(args: tuple[Any, ...], place: int, default: Any) -> Any:
    """Return a positional argument; torch leaves out last ones that equal their defaults."""
    return args[place] if place < len(args) else default


def rate_of_flash(p: float) -> float:
    """Return the share that flash attention drops: it compares a random byte with ⌊255·(1 − p)⌋ in float32.

    Source: `p_dropout_in_uint8_t` in torch's flash_attn/flash_api.cpp, and `<=` in its dropout.h.
    """
    kept = torch.tensor(1.0) - torch.tensor(p)
    return 1 - (math.floor(float(kept) * 255) + 1) / 256


def _flash(state: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Tensor:
    """Return the mask `[B, heads, T, T]` of a call of flash attention that began with a random state."""
    query, key = args[0], args[1]
    with torch.random.fork_rng([query.device]):
        torch.cuda.set_rng_state(state, query.device)
        shown = _FLASH(*args[:4], _given(args, 4, False), True, **(kwargs or {}))[-1]
    kept: Tensor = ~shown[..., : query.shape[-2], : key.shape[-2]].signbit()
    return kept


def _efficient(args: tuple[Any, ...], result: Any) -> Tensor:
    """Return the mask `[B, heads, T, T]` of a call of memory-efficient attention."""
    query, key, dropout = args[0], args[1], args[5]
    uniform = torch.empty(*query.shape[:-1], key.shape[-2], dtype=torch.float32, device=query.device)
    torch.ops.aten._fill_mem_eff_dropout_mask_(uniform, dropout, int(result[2]), int(result[3]))
    kept: Tensor = uniform > dropout
    return kept


class GivenMasks(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Gives masks to unfused dropouts, in order, in place of those that they would draw.

    Raises `MasksDiffer` if the next mask has another shape, or if there is none.
    """

    def __init__(self, masks: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._left = iter(masks)
        self._count = len(masks)

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is DRAWN_ON_CPU:
            return args[0].copy_(self._next(args[0]))
        if func is DROPOUT_OF_GPU and args[2]:
            mask = self._next(args[0])
            return args[0] * mask / (1 - args[1]), mask
        return func(*args, **(kwargs or {}))

    def _next(self, like: Tensor) -> Tensor:
        mask = next(self._left, None)
        if mask is None:
            raise MasksDiffer(f"the run drew {self._count} dropout masks in forward, and the baseline needs more")
        if mask.shape != like.shape:
            raise MasksDiffer(
                f"the run drew a dropout mask of shape {list(mask.shape)} where the baseline has {list(like.shape)}"
            )
        return mask.to(like.device)

    def finish(self) -> None:
        """Raise `MasksDiffer` if a mask was not used."""
        left = sum(1 for _ in self._left)
        if left:
            raise MasksDiffer(f"the run drew {self._count} dropout masks in forward, {left} more than the baseline")


@contextmanager
def given_masks(masks: Sequence[Tensor] | None) -> Iterator[None]:
    """Context in which unfused dropouts have these masks; without masks they draw their own. Raises `MasksDiffer`."""
    if masks is None:
        yield
        return
    with GivenMasks(masks) as given:
        yield
    given.finish()


def pack_mask(mask: Tensor) -> Tensor:
    """Return a mask's bits, eight a byte, as one vector; the last byte is filled up with zeros."""
    flat = mask.reshape(-1)
    flat = torch.nn.functional.pad(flat.to(torch.uint8), (0, -flat.numel() % _BITS)).reshape(-1, _BITS)
    powers = 2 ** torch.arange(_BITS, dtype=torch.uint8, device=mask.device)
    return (flat * powers).sum(1, dtype=torch.uint8)


def unpack_mask(bits: Tensor, shape: Sequence[int]) -> Tensor:
    """Return the mask of a shape from its bits."""
    powers = 2 ** torch.arange(_BITS, dtype=torch.uint8, device=bits.device)
    flat = bits[:, None].bitwise_and(powers).ne(0).reshape(-1)
    return flat[: math.prod(shape)].reshape(tuple(shape))
