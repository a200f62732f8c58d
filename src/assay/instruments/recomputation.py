"""Count each block's forward operations, to compare them with the operations that backward recomputes.

Hooks on a block mark when its forward begins and ends. They also work on compiled and checkpointed blocks, which
replace the function that the block calls. Recomputed operations call no hook of the block; only their phase marks them.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from torch import nn

from assay.model.blocks import blocks_of
from assay.records.trace import BlockForward, OperationClass, Phase


@dataclass
class _Forward:
    """Counts of one block so far."""

    contractions: int = 0
    flops: int = 0
    last_contractions: int = 0
    last_flops: int = 0
    normalizations: int = 0


class BlockForwards:
    """Counts the forward operations of every block in the given modules while `watched` is entered."""

    def __init__(self, parts: Iterable[nn.Module]) -> None:
        self._blocks = blocks_of(parts)
        self._found: dict[int, _Forward] = {}
        self._now: _Forward | None = None
        self._last: int | None = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Hook the blocks, so that each marks the begin and end of its forward."""
        with ExitStack() as hooks:
            for module in self._blocks:
                for handle in (
                    module.register_forward_pre_hook(self._begin, prepend=True),
                    module.register_forward_hook(self._end, prepend=True),  # before a probe's hook, which also computes
                ):
                    hooks.callback(handle.remove)
            yield

    def note(self, phase: Phase, kind: OperationClass, flops: int) -> None:
        """Count one executed operator."""
        if self._now is None or phase != "forward":
            return
        if kind == "contraction":
            self._now.contractions += 1
            self._now.flops += flops
            self._last = flops
        self._now.normalizations += kind == "normalization"

    def forwards(self) -> tuple[BlockForward, ...]:
        """Counts of each block that ran, in the order of the model."""
        return tuple(BlockForward(block=block, **vars(found)) for block, found in sorted(self._found.items()))

    def _begin(self, module: nn.Module, *_: object) -> None:
        self._now, self._last = self._found.setdefault(self._blocks[module], _Forward()), None

    def _end(self, *_: object) -> None:
        if self._now is not None and self._last is not None:
            self._now.last_contractions += 1
            self._now.last_flops += self._last
        self._now = None
