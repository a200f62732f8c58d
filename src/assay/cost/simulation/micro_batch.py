"""Play one micro-batch of a `Cost` forwards and backwards, counting live bytes as torch's allocator would.

The rules are autograd's. A result lives while a later operation reads it or backward needs it. A node frees its saved
tensors when it has run; `gradients` adds up what it returns. A checkpointed module saves its inputs and, with dropout,
the generator's state. Backward recomputes it up to the last operation that saves something, and then treats it like any
other module.

torch 2.13 runs the backward of a stage in two halves (`stage_backward_input` and `stage_backward_weight`). The first
half runs the graph down to the stage's input and keeps the graph. It frees only the saved tensors above the topmost
operation with weights. The gradients that reach operations with weights are kept, too. The second half computes the
weights' gradients from those, from the first operation to the last. Each operation frees its saved tensors, and the
last one all others. The very first stage returns no gradient: its first half does nothing, and its second half is the
whole backward. arXiv:2401.10241 divides it likewise. At the turn of a vee two stages on one rank pass their tensors to
each other without a copy. Each replaces the tensor that the previous step left in the buffer.
"""

from collections.abc import Iterable, Sequence
from itertools import chain

from assay.cost.gpu_kernels import AUTOGRAD, CALLER, backward_scratch, forward_scratch
from assay.cost.layers import ALIAS, CONVERTED, INSIDE, OVERWRITING, TRANSPOSED, VIEWED, is_composed_norm
from assay.cost.operation import Gradient, Operation
from assay.cost.simulation.allocator import (
    ACTIVATION,
    ACTIVATION_GRADIENT,
    COPY,
    GRADIENT,
    NUMBER,
    Category,
    Returned,
    Segment,
    Storage,
    before_product,
)
from assay.cost.simulation.fsdp_groups import ShardedGroup
from assay.cost.simulation.step_state import FLOAT32, Gradients, Holders, PlayedStage, PlayedStep


class Pass(Holders):
    """One micro-batch in forward and backward through a stage."""

    def __init__(self, step: PlayedStep, stage: PlayedStage, *, first: bool, last: bool) -> None:
        super().__init__(step, stage)
        self.step, self.stage, self.first, self.last = step, stage, first, last
        self.sizes, self.gpu = step.sizes, step.cost.kernels.gpu
        self.noise: dict[int, list[Storage]] = {}
        """Generator states for the recomputations that begin at these positions."""
        self.numbers: dict[int, list[Storage]] = {}
        """Numbers saved for the nodes at these positions."""
        self.gradients = Gradients(step, stage)
        again = (range(segment.first, segment.stop + 1) for segment in self.plan.segments)
        self.again = frozenset(chain.from_iterable(again))
        """Positions whose nodes get their saved tensors from recomputation."""

    def forward(self) -> None:
        """Run the tape; recomputed modules save only their inputs."""
        inside = {index: one for one in self.plan.segments for index in range(one.first, one.last + 1)}
        gathered, tape, dying = self.stage.gathered, self.cost.tape, self.plan.dying
        begins, ends, last = self.stage.begins, self.stage.ends, self.stage.indices[-1]
        for index in self.stage.indices:
            operation, segment = tape[index], inside.get(index)
            if index in begins:
                for group in begins[index]:
                    gathered.before_forward(group)
            if segment is not None and index == segment.first:
                self.noise[index] = self.ledger.take_if(self.cost.backward.noise_bytes, Category.GENERATOR)
            self.numbers[index] = self._number(operation)
            self._run(index, operation, "forward")
            self.ledger.take_if(FLOAT32 * (index in self.stage.watched), NUMBER)
            if index == last and self.stage.output is not None:
                self.storages[self.plan.base[self.stage.output]].holders += 1
            if segment is None:
                self._keep(index, operation.saves)
            else:
                if index == segment.first:
                    self._keep(index, segment.inputs)
                if index in segment.cached:
                    self._cache(index, operation)
            if index in dying:
                self._release(dying[index])
            if index in ends:
                for group in reversed(ends[index]):
                    gathered.after_forward(group)
        gathered.leave_forward()
        self._leave_contexts(self.stage.indices)

    def backward(self) -> None:
        """Run the tape's nodes in reverse; recompute a module before the first node that needs its saved tensors."""
        segments = {segment.stop: segment for segment in self.plan.segments}
        tape, returned, begins, ends = self.cost.tape, self.plan.returned, self.stage.begins, self.stage.ends
        self._receive()
        for index in reversed(self.stage.indices):
            if index in ends:
                for group in ends[index]:
                    self.stage.gathered.before_backward(group)
            if index in segments:
                with self.ledger.held(self.cost.backward.noise_bytes):
                    self._recompute(segments[index])
            self._node(index, tape[index], returned[index])
            if index in self.plan.hands_over:
                self.gradients.accumulate_complete()
            if index in begins and not self.cost.order:
                self._exchange(reversed(begins[index]))
        self._leave()

    def _receive(self) -> None:
        """Receive the gradient of a stage's output, in a permanent buffer that is never freed, or that of the loss."""
        if self.stage.output is None:
            loss = self.cost.tape[self.stage.indices[-1]].outputs[0].name
            self.gradients.by_name[loss] = self.ledger.take(FLOAT32, NUMBER)
        else:
            received = Storage(self.sizes[self.stage.output], ACTIVATION_GRADIENT, holders=2)
            self.gradients.by_name[self.stage.output] = received

    def _leave(self) -> None:
        """End backward: send the gradient of the stage's input, sum a pipeline's groups, and free the last message."""
        gathered, output = self.stage.gathered, self.stage.output
        if output is not None and not self.cost.pipeline.sent_stays:
            self.stage.leave(self.ledger, [self.storages[self.plan.base[output]], *self.gradients.by_name.values()])
        if self.cost.order and self.last:
            self._exchange(gathered.groups)
        gathered.leave_backward()

    def _exchange(self, groups: Iterable[ShardedGroup]) -> None:
        for group in groups:
            self.stage.gathered.after_backward(group, self.step.gradients, first=self.first, last=self.last)

    def _run(self, index: int, operation: Operation, phase: str) -> None:
        ledger, site, scratch = self.ledger, operation.site, operation.scratch.forward
        loop = operation.compiled and not operation.flops.forward
        for tensor in operation.outputs + operation.extras:
            if tensor.view_of is None:
                name, category = tensor.name, COPY if tensor.held else ACTIVATION
                argument = self._overwritten(index, operation, name) if loop else None
                self.storages[name] = argument or ledger.take(self.sizes[name], category, site)
                if self.ledger.late and name in self.cost.copied_beside:
                    self.storages[name].holders += 1
        self.step.multiply(operation, CALLER if phase == "forward" else AUTOGRAD)
        if self.gpu is not None:
            ledger.mark_inside(forward_scratch(operation, self.cost.values, self.gpu), phase, operation.name, site)
        if scratch:
            ledger.mark_with(scratch, phase, operation.name, site)
        else:
            ledger.mark(phase, operation.name, site)

    def _number(self, operation: Operation) -> list[Storage]:
        return self.ledger.take_if(operation.number_bytes, NUMBER, operation.site)

    def _overwritten(self, index: int, operation: Operation, name: str) -> Storage | None:
        """Argument whose storage a compiled loop takes for a result, because nothing needs it any more."""
        for base in self.plan.read_last(index, operation):
            storage = self.storages.get(base)
            if storage is not None and base not in self.lasting and storage.may_become(self.sizes[name]):
                self.ledger.overwrite(storage, storage.category, operation.site)
                return self.storages.pop(base)
        return None

    def _recompute(self, segment: Segment) -> None:
        again, runs, dying = range(segment.first, segment.stop + 1), segment.runs, self.plan.dying
        numbers: list[Storage] = []
        inputs = self.kept.pop(segment.first, [])
        for base in inputs:
            if base not in self.lasting and self.plan.last_use[base] in again:
                self.storages[base].holders += 1  # held by the module's frame as well as for backward
        for index in again:
            operation = self.cost.tape[index]
            if index == segment.stop and segment.stops_within:
                operation = before_product(operation)
            if index in runs:
                numbers += self._number(operation)
                self._run(index, operation, "recompute")
            elif index < segment.end:
                self.cached.pop(index)  # from here on it is released like a recomputed result
            self._keep(index, operation.saves)
            self._release(dying.get(index, ()))
        for index in range(segment.first, segment.stop if segment.stops_within else segment.end):
            # Results that only operations beyond the stop would read are released when recomputation ends.
            made = (one for one in self.cost.tape[index].outputs if one.view_of is None and not one.held)
            self._release([one.name for one in made if self.plan.last_use[one.name] > segment.stop])
        self._leave_contexts(again)
        for number in numbers:  # their nodes are recomputed, too, and never run
            self.ledger.drop(number)
        unused = [name for index in segment.cached for name in self.cached.pop(index, ())]
        self.kept[segment.first] = inputs + unused + self.kept.get(segment.first, [])

    def _node(self, index: int, operation: Operation, returned: Sequence[Returned]) -> None:
        """Run one backward node: take the outputs' gradients, compute the inputs', free the saved tensors.

        A recomputed node has freed its saved tensors when the engine converts gradients.
        """
        ledger, gradients, scratch = self.ledger, self.gradients, operation.scratch.backward
        incoming = gradients.take(operation)
        given = self._gradients(index, operation, returned, incoming)
        self.step.multiply_back(operation)
        if is_composed_norm(operation):
            # It adds to its input's gradient twice: also before it differentiates the squares. The weight's gradient is
            # accumulated before that, too.
            for name, storage in reversed(given):
                gradients.deliver(name, storage, operation)
            given = []
        if scratch:
            ledger.mark_with(scratch, "backward", operation.backward, operation.site)
        else:
            ledger.mark("backward", operation.backward, operation.site)
        if self.gpu is not None:
            inside = backward_scratch(operation, self.cost.values, self.gpu)
            ledger.mark_inside(inside, "backward", operation.backward, operation.site)
        if CONVERTED in operation.gradients and any(how is CONVERTED for _, how in returned):
            if index in self.again:
                self._free_saved(index)  # a recomputed node has no other references to them
            given = ledger.converted(given, operation, self.sizes)
        if index in self.kept:
            self._free_saved(index)
        for held in (*self.noise.pop(index, ()), *self.numbers.pop(index, ())):
            ledger.drop(held)
        for storage in incoming:
            ledger.drop(storage)
        for name, storage in given:
            gradients.deliver(name, storage, operation)

    def _gradients(
        self, index: int, operation: Operation, returned: Sequence[Returned], incoming: list[Storage]
    ) -> list[tuple[str, Storage]]:
        """The gradients that a node computes. A compiled product computes the weight's first and then frees the input.

        A recomputed node computes a bias's gradient last, after it has freed its saved tensors.
        """
        if not (operation.compiled and operation.flops.forward):
            given, frees = [], index in self.again and operation.name == "aten.addmm"
            for name, how in returned:
                if frees and name == operation.inputs[-1]:
                    self.ledger.mark("backward", operation.backward, operation.site)
                    self._free_saved(index)
                given.append((name, self._gradient(index, name, how, operation, incoming)))
            return given
        (factor, how), *weights = returned
        given = [(name, self._gradient(index, name, one, operation, incoming)) for name, one in reversed(weights)]
        base = self.plan.base[factor]
        if base in self.kept.get(index, ()) and base not in self.lasting:
            self.ledger.mark("backward", operation.backward, operation.site)
            self.kept[index].remove(base)
            self._release((base,))
        return [(factor, self._gradient(index, factor, how, operation, incoming)), *given]

    def _gradient(self, index: int, name: str, how: Gradient, operation: Operation, incoming: list[Storage]) -> Storage:
        if how is INSIDE and not incoming:
            return self.ledger.take(0, ACTIVATION_GRADIENT)  # gradient of the loss, which is one number
        same = how is ALIAS and incoming and self.cost.values[name].dtype == operation.outputs[0].dtype
        if same or how is INSIDE:
            incoming[0].holders += 1
            return incoming[0]
        nbytes = self.sizes[operation.outputs[0].name if how is CONVERTED else name]
        category = GRADIENT if name in self.learned else ACTIVATION_GRADIENT
        if how is OVERWRITING:
            kept = (self.storages[one] for one in self.kept.get(index, ()) if one not in self.lasting)
            for storage in chain(incoming, kept):
                if storage.may_become(nbytes):
                    storage.holders += 1
                    self.ledger.overwrite(storage, category, storage.site)
                    return storage
        storage = self.ledger.take(nbytes, category, operation.site)
        if how is VIEWED:
            storage.viewed = True
        elif how is TRANSPOSED:
            storage.transposed = True
        return storage


class Halved(Pass):
    """One micro-batch through a stage of a pipeline, whose backward runs in two halves."""

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
