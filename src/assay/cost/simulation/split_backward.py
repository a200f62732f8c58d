"""A stage's backward in two halves, as torch 2.13 divides it (`stage_backward_input` and `stage_backward_weight`).

The first half runs the graph down to the stage's input and keeps the graph. It frees only the saved tensors above the
topmost operation with weights. The gradients that reach operations with weights are kept, too. The second half computes
the weights' gradients from those, from the first operation to the last. Each operation frees its saved tensors, and the
last one all others. The very first stage returns no gradient: its first half does nothing, and its second half is the
whole backward. arXiv:2401.10241 divides it likewise.

At the turn of a vee two stages on one rank pass their tensors to each other without a copy. Each replaces the tensor
that the previous step left in the buffer.
"""

from collections.abc import Sequence

from assay.cost.operation import Operation
from assay.cost.simulation.allocator import Category, Storage
from assay.cost.simulation.liveness import Returned
from assay.cost.simulation.micro_batch import Pass
from assay.cost.simulation.step_state import PlayedStage, PlayedStep


class Halved(Pass):
    """One micro-batch in forward and backward through a stage of a pipeline."""

    def __init__(self, step: PlayedStep, stage: PlayedStage, *, first: bool, last: bool) -> None:
        super().__init__(step, stage, first=first, last=last)
        self.waiting: dict[int, dict[str, Storage]] = {}
        """Gradients of an operation's results, by its position on the tape, until the weights' gradients are computed
        from them."""

    def forward(self) -> None:
        super().forward()
        if self.stage.leads_here and self.stage.output is not None:
            self._replace(self.stage.output)

    def input_gradients(self) -> None:
        """Run the first half: gradients down to the stage's input."""
        if not self._hands_back():
            return
        kept, self.kept = self.kept, {}
        self._receive()
        for index in reversed(self.stage.indices):
            operation = self.cost.tape[index]
            if self._has_weights(operation):
                self._wait(index, operation)
            self._node(index, operation, self._returned(index, weights=False))
        self.kept = kept
        for index in [one for one in kept if one > max(self.waiting)]:
            self._free_saved(index)
        if self.stage.follows_here:
            for name in self.gradients.by_name:
                self._replace(name)

    def weight_gradients(self) -> None:
        """Run the second half: gradients of the stage's weights."""
        if not self.waiting:
            self.backward()
            return
        for index, gradients in sorted(self.waiting.items()):
            self.gradients.by_name.update(gradients)
            self._node(index, self.cost.tape[index], self._returned(index, weights=True))
        for index in list(self.kept):
            self._free_saved(index)
        self._leave()

    def _hands_back(self) -> bool:
        """True if an input of the stage has a gradient."""
        return any(
            name in self.lasting and name not in self.cost.parameters
            for index in self.stage.indices
            for name, _ in self.plan.returned[index]
        )

    def _has_weights(self, operation: Operation) -> bool:
        return not self.cost.parameters.keys().isdisjoint(operation.inputs)

    def _wait(self, index: int, operation: Operation) -> None:
        here = self.gradients.of_results(operation)
        for storage in here.values():
            storage.holders += 1
        self.waiting[index] = here

    def _returned(self, index: int, *, weights: bool) -> Sequence[Returned]:
        """The gradients that an operation's backward returns of its weights only, or of all but its weights."""
        return [one for one in self.plan.returned[index] if (one[0] in self.cost.parameters) == weights]

    def _replace(self, name: str) -> None:
        """Free a buffer's earlier tensor."""
        self.ledger.drop(Storage(self.sizes[name], Category.ACTIVATION))
