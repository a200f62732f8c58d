"""Each matrix is split over ranks that work on the same tokens: heads and hidden units are divided, not sequences.

Arithmetic, weights, gradients and optimizer state of the matrices fall with the degree. Every rank holds the residual
stream, the norms and their weights whole. It communicates most often of all techniques, four all-reduces a block, so it
needs the fastest links (arXiv:1909.08053, arXiv:2104.04473).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from assay.config import ResolvedRun
from assay.optimizations.optimization import Conflict, Numerics, Optimization, Stage
from assay.records.evidence import Evidence
from assay.records.trace import HeldParameter, Trace

if TYPE_CHECKING:
    from assay.cost import Cost
    from assay.cost.mesh_layout import Layout
    from assay.hardware import Machine
    from assay.step.program import Program


class TensorParallel(Optimization):
    """Column- and row-split attention and MLP, vocabulary-split embedding and loss."""

    degree: Annotated[int, Field(ge=2)] = 2
    """Ranks that share every matrix."""

    title: ClassVar = "tensor parallelism"
    stage: ClassVar = Stage.TENSOR
    numerics: ClassVar = Numerics.REASSOCIATED
    saves: ClassVar = "weights, gradients, state and arithmetic of all matrices: 1/degree of each on each rank"
    pays: ClassVar = "two all-reduces of the residual stream in forward of each block, and two in backward"
    sources: ClassVar = ("arXiv:1909.08053", "arXiv:2104.04473")
    claims: ClassVar = frozenset({"matrices", "experts", "loss"})
    traits: ClassVar = frozenset({"pieces of weights", "columns of logits"})

    def axes(self) -> Mapping[str, int | None]:
        return {"tp": self.degree}

    def lay_out(self, layout: "Layout") -> "Layout":
        return layout

    def check(self, run: ResolvedRun, machine: "Machine") -> None:
        model = run.model
        if model.logit_softcap is not None:
            raise Conflict(
                "tensor_parallel splits the logits among ranks, for which model.logit_softcap is not proven; "
                "set it to null, or use fully_sharded"
            )
        for what, size in (("key/value heads", model.kv_heads), ("hidden units of the MLP", model.hidden)):
            if size % self.degree:
                raise Conflict(
                    f"tensor_parallel:degree={self.degree} does not divide the model's {size} {what}; "
                    f"choose a divisor of {size}"
                )

    def predict(self, cost: "Cost", run: ResolvedRun, machine: "Machine") -> "Cost":
        from assay.optimizations.tensor_parallel.ledger import split_matrices

        return split_matrices(cost)

    def apply(self, program: "Program", run: ResolvedRun) -> "Program":
        from assay.optimizations.tensor_parallel.step import split_matrices

        return split_matrices(program, program.parallel.axis("tp"))

    def verify(self, trace: Trace, run: ResolvedRun) -> Evidence:
        from assay.proofs.sharding import divided_as

        held, whole = trace.memory.parameter_bytes, trace.memory.whole_parameter_bytes
        right, parameters = divided_as(trace, trace.parameters, "tp", _split_along), len(trace.parameters)
        reduced = trace.communicated("all_reduce", "reduce_scatter", axis="tp", phase="forward")
        observed = f"{held} of {whole} bytes of weights held by this rank; {reduced} bytes summed over tp in forward"
        if right != parameters:
            observed += f"; {right} of {parameters} weights are sharded as expected"
        # Every pair of matrices sums its outputs, and so does the embedding, with 2 bytes a number at least.
        sums = 2 * len(trace.blocks) + any(one.name.startswith("embedding.") for one in trace.parameters)
        positions = trace.batch.sequences * run.model.context_length // trace.ranks.get("cp", 1)
        summed = reduced >= 2 * sums * positions * run.model.n_embd
        degree = trace.ranks.get("tp", 1) == self.degree
        return self.evidence(observed, degree and 0 < right == parameters and held < whole and summed)


def _split_along(one: HeldParameter) -> int | None:
    """Dimension along which a weight is split, None if it is whole.

    A pair's first matrix is split by rows, its second by columns; experts have one more dimension in front.
    """
    module = one.name.removesuffix(".weight").removesuffix(".bias")
    if ".experts." in one.name:
        return 2 if one.name.endswith(".down") else 1
    if module.endswith(("attention.projection", "mlp.down")):
        return 1 if len(one.whole_shape) == 2 else None
    rows = ("attention.qkv", "mlp.up", "mlp.gate", "embedding.token", "head.projection")
    return 0 if module.endswith(rows) else None
