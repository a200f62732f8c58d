"""Where one optimizer step's time, FLOPs and bytes went, as plain data: by class of operator and by module.

The classes are those of arXiv:2007.00072, as in a `Trace`. Every operator of the step is in exactly one part, so the
shares of classes, and those of modules, sum to the whole.
"""

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from assay.config.base import Frozen
from assay.step.evidence import Evidence
from assay.step.trace import OperationClass, Phase

CLASSES: tuple[OperationClass, ...] = ("contraction", "normalization", "elementwise", "movement", "communication")

_Key = TypeVar("_Key")

UPDATE, BETWEEN = "update", "between modules"
"""In the place of a module: the optimizer's part, with norm and clipping; and what no module's code asked for."""


class Part(Frozen):
    """All executions of operators of one class in one module and phase."""

    module: str
    """Its name in the whole model, for instance `blocks.3.mlp.up`."""
    phase: Phase
    operation_class: OperationClass
    count: int
    seconds: float
    flops: int
    bytes: int
    """What the operators must at least move."""


class Sum(Frozen):
    """Parts together."""

    count: int = 0
    seconds: float = 0.0
    flops: int = 0
    bytes: int = 0

    def plus(self, part: Part) -> "Sum":
        """With one more."""
        return Sum(
            count=self.count + part.count,
            seconds=self.seconds + part.seconds,
            flops=self.flops + part.flops,
            bytes=self.bytes + part.bytes,
        )


class Anatomy(Frozen):
    """One step, taken apart."""

    parts: tuple[Part, ...]
    step_seconds: float
    """Of a step that nobody watched, the median of several."""
    watched_seconds: float
    """Of a step that was taken apart, the median likewise: longer, by what watching it took."""
    title: str = ""
    """Whose step it is: the configuration, and what was turned on in it."""
    evidence: tuple[Evidence, ...] = ()
    """Of what was turned on, from one more step, traced."""

    @property
    def whole(self) -> Sum:
        """Every operator."""
        return self._by(lambda part: "")[""]

    def by_class(self) -> Mapping[OperationClass, Sum]:
        """In the order of `CLASSES`; those that did not occur are missing."""
        found = self._by(lambda part: part.operation_class)
        return {kind: found[kind] for kind in CLASSES if kind in found}

    def by_module(self) -> Mapping[str, Sum]:
        """Blocks together (`blocks.*.mlp.up`), in the order of first execution."""
        return self._by(lambda part: together(part.module))

    def by_module_and_class(self) -> Mapping[tuple[str, OperationClass], Sum]:
        """The same, each divided by class."""
        return self._by(lambda part: (together(part.module), part.operation_class))

    def _by(self, key: Callable[[Part], _Key]) -> dict[_Key, Sum]:
        found: dict[_Key, Sum] = {}
        for part in self.parts:
            found[key(part)] = found.get(key(part), Sum()).plus(part)
        return found


def together(module: str) -> str:
    """A module's name with the number of its block left out."""
    return re.sub(r"^blocks\.\d+", "blocks.*", module)
