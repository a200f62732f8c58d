"""Weights, gradients and optimizer state are sharded over the ranks; each block's weights are gathered when it runs.

These are the three stages of ZeRO (arXiv:1910.02054) in torch's second engine for it (arXiv:2304.11277). With `reshard`
a block's weights are freed after its forward and gathered again for its backward (stage 3). Without it, they stay until
backward has finished (stage 2). Each block's backward ends with a reduce-scatter of its gradients. With
`mixed_precision` half as many bytes are gathered. Everything between the embedding and the logits is then bfloat16,
including norms, which autocast would keep in float32. With `offload` a GPU holds one block's weights at a time, and the
link to the host sets the pace (arXiv:2101.06840). With `reshard` shards are then sent to the device twice a step and
summed gradients to the host once. The predicted time does not count these transfers yet.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, get_args

from assay.config import ResolvedRun
from assay.optimizations.optimization import Conflict, Numerics, Optimization, Stage, Unavailable, Unplanned
from assay.records.evidence import Evidence
from assay.records.trace import Phase, Trace
from assay.reference.expected import REASSOCIATED, Expected, Rounding, lossy

if TYPE_CHECKING:
    from assay.cost import Cost
    from assay.cost.mesh_layout import Layout
    from assay.hardware import Machine
    from assay.step.program import Program

_GRADIENT_ERROR = 0.1
"""Largest relative error of one gradient with mixed precision."""
_SLOPE_ERROR = 0.05
"""Largest error of a gradient's scale."""
_LOSS_ERROR = 2e-3
"""Largest relative error of the loss."""
_ROUNDED = 2**-12
"""Relative error that bfloat16 must cause in some gradient."""
_NEAR = lossy(
    _GRADIENT_ERROR,
    at_least=_ROUNDED,
    slope=_SLOPE_ERROR,
    loss=_LOSS_ERROR,
    rounding=Rounding(dtype="bfloat16", everywhere=True),
)


class FullySharded(Optimization):
    """Shards of everything that a replica holds between steps."""

    reshard: bool = True
    """Free a block's weights between its forward and its backward."""
    mixed_precision: bool = False
    """Gather weights and compute in bfloat16; keep weights, and sum gradients and the loss, in float32."""

    offload: bool = False
    """Keep shards, gradients and optimizer state on the host, and update there. It has not run on a GPU yet."""

    title: ClassVar = "fully sharded data parallelism"
    stage: ClassVar = Stage.SHARD
    numerics: ClassVar = Numerics.REASSOCIATED
    saves: ClassVar = "weights, gradients and optimizer state: 1/n of each on each rank"
    pays: ClassVar = (
        "one or two all-gathers of the weights a step, and one reduce-scatter: up to 1.5 times data parallelism's bytes"
    )
    sources: ClassVar = ("arXiv:1910.02054", "arXiv:2304.11277", "arXiv:2101.06840")
    claims: ClassVar = frozenset({"replicas"})
    traits: ClassVar = frozenset({"pieces of weights"})

    @property
    def promised(self) -> Numerics:
        return Numerics.LOSSY if self.mixed_precision else self.numerics

    def axes(self) -> Mapping[str, int | None]:
        return {"dp": None}

    def lay_out(self, layout: "Layout") -> "Layout":
        if self.offload:
            raise Unplanned(f"{self.name()}:offload=true")
        return replace(layout, zero=3 if self.reshard else 2)

    def bears(self) -> frozenset[str]:
        low = {"forward precision", "16-bit products"} if self.mixed_precision else set()
        again = {"gathers for backward"} if self.reshard else set()
        return super().bears() | low | again | ({"host reads"} if self.offload else set())

    def excludes(self, run: ResolvedRun) -> Mapping[str, str]:
        away = (
            "fully_sharded:offload=true keeps weights on the host, also the experts that {other} computes with; leave "
            "out one of them"
        )
        both = "fully_sharded:mixed_precision=true and {other} both choose the precision; leave out one of them"
        stages = "the stages of {other} communicate in float32; use bf16_mixed instead of mixed_precision"
        low = {"forward precision": both, "stages": stages} if self.mixed_precision else {}
        return {**low, **({"exchanged experts": away} if self.offload else {})}

    def check(self, run: ResolvedRun, machine: "Machine") -> None:
        if self.offload and machine.device(run.device) == "cpu":
            raise Unavailable(
                "fully_sharded:offload=true moves nothing on a CPU, where weights are in the host's memory already; "
                "use a CUDA device"
            )
        if self.mixed_precision and run.model.n_expert is not None:
            raise Conflict(
                "the router of a mixture of experts must stay in float32; use bf16_mixed instead of mixed_precision"
            )

    def predict(self, cost: "Cost", run: ResolvedRun, machine: "Machine") -> "Cost":
        from assay.cost.rewrites.replicated_step import computing_in, shard_ledger

        narrow = computing_in(cost, "bfloat16") if self.mixed_precision else cost
        return shard_ledger(narrow, reshard=self.reshard, on_host=self.offload)

    def apply(self, program: "Program", run: ResolvedRun) -> "Program":
        from assay.parallel.fsdp import shards

        return shards(program, program.parallel.axis("dp"), **self.model_dump())

    def expect(self, expected: Expected, run: ResolvedRun) -> Expected:
        near = _NEAR if self.mixed_precision else REASSOCIATED
        return expected.loosened(gradients=near, updates=REASSOCIATED)

    def verify(self, trace: Trace, run: ResolvedRun) -> Evidence:
        from assay.proofs.sharding import divided_as, wrong_share

        held, whole = trace.memory.parameter_bytes, trace.memory.whole_parameter_bytes
        right, parameters = divided_as(trace, trace.parameters, "dp", lambda one: 0), len(trace.parameters)
        observed = f"{held} of {whole} bytes of weights held by this rank"
        if right != parameters:
            observed += f", and {right} of {parameters} weights sharded by rows"
        shown = trace.ranks.get("dp", 1) > 1 and 0 < right == parameters and 0 < held < whole
        if self.mixed_precision:
            low, total = trace.contractions(dtype="bfloat16"), trace.contractions()
            observed, shown = f"{observed}; {low} of {total} matmuls in bfloat16", shown and 0 < low == total
        if self.offload:
            away = trace.memory.offloaded_bytes
            observed = f"{observed}; {away} bytes of weights on the host"
            shown = shown and away == held
        moved, right = self._moved(trace)
        wrong = wrong_share(trace, run)
        return self.evidence(f"{observed}; {moved}{wrong}", shown and right and not wrong)

    def _moved(self, trace: Trace) -> tuple[str, bool]:
        """Describe the bytes gathered and summed over dp, and return whether a step needs exactly these."""
        from assay.proofs.sharding import message_bytes

        forward = trace.communicated("all_gather", axis="dp", phase="forward")
        again = trace.communicated("all_gather", axis="dp") - forward
        summed = trace.communicated("reduce_scatter", axis="dp")
        dtypes = sorted({one.dtype for one in trace.parameters})
        kept = sum(trace.communicated("reduce_scatter", axis="dp", dtype=one) for one in dtypes)
        observed = (
            f"{forward} bytes of weights gathered for forward and {again} for backward; "
            f"{kept} of {summed} bytes of gradients summed in {', '.join(dtypes)}"
        )
        if trace.ranks.get("pp", 1) > 1:
            # A pipeline keeps the gathered weights from a backward to the next forward.
            exact = forward > 0 and (again > 0) is self.reshard
            ends = sum(any(one.name.startswith(end) for one in trace.parameters) for end in ("embedding.", "head."))
            sums = sum(trace.calls("reduce_scatter", "dp", phase) for phase in get_args(Phase))
            observed += f", in {sums} reduce-scatters for {len(trace.blocks) + ends} groups of weights"
            exact = exact and sums == len(trace.blocks) + ends
        else:
            frozen = (one for one in trace.parameters if not one.trained)
            due = forward * (2 if self.mixed_precision else 1) - message_bytes(trace, frozen) * trace.forwards
            exact = due == summed * trace.forwards > 0
            exact = exact and again == (forward if self.reshard else 0)
        return observed, exact and kept == summed > 0
