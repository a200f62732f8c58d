"""Tapes of a few operations, whose live bytes can be counted by hand."""

from collections.abc import Mapping
from dataclasses import replace

from assay.cost import Cost, Gradient, Instant, Tensor, UpdateRule
from assay.cost.kernels import CPU
from assay.cost.operation import Operation
from assay.cost.step_cost import Batch, OptimizerStep

N = 100
"""Elements of every tensor here: 400 bytes in float32."""


def tensor(name: str, **changes: object) -> Tensor:
    return replace(Tensor(name, (N,)), **changes)  # type: ignore[arg-type]


def operation(name: str, inputs: str, output: str, saves: str = "", how: Gradient = Gradient.FRESH) -> Operation:
    reads = tuple(inputs.split())
    return Operation(
        name=name,
        site=f"site.{name}",
        kind="elementwise",
        inputs=reads,
        outputs=(tensor(output),),
        gradients=tuple(Gradient.INPLACE if read.startswith("w") else how for read in reads),
        saves=tuple(saves.split()),
        backward=f"{name}Backward",
    )


class Makes(UpdateRule):
    """An optimizer that keeps nothing, and makes what it is told."""

    def __init__(self, *instants: Instant) -> None:
        self._instants = instants

    def state(self, pieces: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        return ()

    def instants(self, pieces: Mapping[str, Tensor]) -> tuple[Instant, ...]:
        return self._instants


def cost(*tape: Operation, parameters: str = "w", **changes: object) -> Cost:
    learned = {name: tensor(name, batched=False) for name in parameters.split()}
    base = Cost(
        tape=tape,
        parameters=learned,
        pieces=learned,
        tables=(),
        batch=Batch((tensor("x", batched=False),)),
        optimizer=OptimizerStep(Makes()),
        kernels=CPU,
    )
    return replace(base, **changes)  # type: ignore[arg-type]
