"""Train on a part of each batch: a treatment that changes training, not only its cost.

"A smaller batch saves memory" can mean two treatments. This one gives up tokens: of every batch, one sequence in
`factor` is trained on. Each optimizer step sees fewer tokens, and its gradient is noisier (McCandlish et al. 2018,
arXiv:1812.06162). The number of steps and the learning rate stay as they are unless the run says otherwise. A run's
record counts the tokens that it saw, so its loss can be compared with a run that saw as many. The other treatment, the
same tokens in parts, is accumulation.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from assay.config import ResolvedRun
from assay.optimizations.optimization import Numerics, Optimization, Stage
from assay.records.evidence import Evidence
from assay.records.trace import Trace
from assay.reference.expected import Expected

if TYPE_CHECKING:
    from assay.cost import Cost
    from assay.cost.mesh_layout import Layout
    from assay.hardware import Machine
    from assay.step.program import Program


class SmallerBatch(Optimization):
    """Fewer sequences in each optimizer step."""

    factor: Annotated[int, Field(ge=2)] = 2
    """Factor by which the sequences of a step are divided."""

    title: ClassVar = "smaller batch"
    stage: ClassVar = Stage.BATCH
    any_model: ClassVar = True
    numerics: ClassVar = Numerics.DIFFERENT_TRAINING
    saves: ClassVar = "activations, and the time of a step: both fall with the sequences"
    pays: ClassVar = "tokens: the same number of steps trains on only 1/factor of them; noisier gradients"
    sources: ClassVar = ("arXiv:1812.06162", "arXiv:1404.5997")

    def lay_out(self, layout: "Layout") -> "Layout":
        return replace(layout, batch=layout.batch // self.factor, micro_batch=layout.micro_batch // self.factor)

    def leaves_one_in(self) -> int:
        return self.factor

    def predict(self, cost: "Cost", run: ResolvedRun, machine: "Machine") -> "Cost":
        return cost.part(self.factor)

    def apply(self, program: "Program", run: ResolvedRun) -> "Program":
        whole, factor = program.batches, self.factor
        # The first of `factor` shares, divided among ranks as the whole batch would be.
        return replace(program, batches=lambda step, share: whole(step, (share[0] * factor, share[1] * factor)))

    def expect(self, expected: Expected, run: ResolvedRun) -> Expected:
        return expected  # `batch_divisor` already names the rows that are left

    def verify(self, trace: Trace, run: ResolvedRun) -> Evidence:
        whole = run.tokens_per_step * run.batch_divisor
        observed = f"{trace.batch.targets} of the batch's {whole} {run.counted} trained on in one step"
        return self.evidence(observed, trace.batch.targets == whole // self.factor)
