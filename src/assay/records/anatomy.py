"""Time, FLOPs and bytes of one optimizer step by operator class and by module, as plain data.

The classes are those of arXiv:2007.00072, as in a `Trace`. Every operator of the step is in exactly one part, so the
shares of classes, and those of modules, sum to the whole.
"""

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from assay.config.base import Frozen
from assay.records.evidence import Evidence
from assay.records.trace import OperationClass, Phase

CLASSES: tuple[OperationClass, ...] = ("contraction", "normalization", "elementwise", "movement", "communication")

_Key = TypeVar("_Key")

UPDATE, BETWEEN = "update", "between modules"
"""Names in place of a module's: the update, with norm and clipping; and operators that no module called."""


class Part(Frozen):
    """All executions of operators of one class in one module and phase."""

    module: str
    """Name of the module in the whole model, for instance `blocks.3.mlp.up`."""
    phase: Phase
    operation_class: OperationClass
    count: int
    seconds: float
    flops: int
    bytes: int
    """Least bytes that the operators move."""


class Operator(Frozen):
    """One execution of an operator."""

    name: str
    module: str
    phase: Phase
    operation_class: OperationClass
    begin_seconds: float
    """Time since the first operator of the step."""
    seconds: float
    flops: int
    bytes: int
    """Least bytes that it moves."""
    alive_bytes: int | None = None
    """Bytes of live tensors at its end, its arguments among them."""


class Sum(Frozen):
    """Sum of several parts."""

    count: int = 0
    seconds: float = 0.0
    flops: int = 0
    bytes: int = 0

    def plus(self, part: Part) -> "Sum":
        """Return the sum with one more part."""
        return Sum(
            count=self.count + part.count,
            seconds=self.seconds + part.seconds,
            flops=self.flops + part.flops,
            bytes=self.bytes + part.bytes,
        )


class Anatomy(Frozen):
    """One step, divided into parts."""

    parts: tuple[Part, ...]
    step_seconds: float
    """Time of a step that is not watched, the median of several."""
    watched_seconds: float
    """Time of a step that is taken apart, the median of several. It is longer by the cost of watching."""
    title: str = ""
    """Configuration of the step, and the optimizations that it turns on."""
    evidence: tuple[Evidence, ...] = ()
    """Evidence of the optimizations, from one more step, which is traced."""
    operators: tuple[Operator, ...] = ()
    """Operators of one more watched step, in their order; empty unless they were asked for."""

    @property
    def whole(self) -> Sum:
        """Sum over all operators."""
        return self._by(lambda part: "")[""]

    def by_class(self) -> Mapping[OperationClass, Sum]:
        """Sums by operator class, in the order of `CLASSES`; classes that do not occur are missing."""
        found = self._by(lambda part: part.operation_class)
        return {kind: found[kind] for kind in CLASSES if kind in found}

    def by_module(self) -> Mapping[str, Sum]:
        """Sums by module, with all blocks together (`blocks.*.mlp.up`), in the order of first execution."""
        return self._by(lambda part: together(part.module))

    def by_module_and_class(self) -> Mapping[tuple[str, OperationClass], Sum]:
        """Sums by module and class, with all blocks together, in the order of first execution."""
        return self._by(lambda part: (together(part.module), part.operation_class))

    def _by(self, key: Callable[[Part], _Key]) -> dict[_Key, Sum]:
        found: dict[_Key, Sum] = {}
        for part in self.parts:
            found[key(part)] = found.get(key(part), Sum()).plus(part)
        return found


def together(module: str) -> str:
    """Name of a module with the number of its block, the first in the name, replaced by `*`."""
    return re.sub(r"\.\d+(?=\.|$)", ".*", module, count=1)
