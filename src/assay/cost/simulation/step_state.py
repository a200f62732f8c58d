"""State of a step while it is played: the ledger, stages, gradients, and the results that micro-batches hold.

Without a pipeline there is one stage with all modules. Results of a micro-batch are held by later operations, nodes of
backward, and modules that are recomputed. Its gradients follow the rules of autograd's engine: a second gradient of a
value is added into the first if nothing else holds that. A parameter's gradient is accumulated once all its uses have
contributed.

The code of a step also holds numbers. `training.gradients` divides the summed loss of a micro-batch by the tokens of
the step. Its frame holds the loss and the quotient during backward, and torch's `backward` holds the quotient's
gradient, which is 1. The loss of the first micro-batch, or the sum of several, stays until the step ends. So do the
norms of the first and the last block's output (`training.probes`). All of them are float32 scalars, 4 bytes each.
"""

from collections.abc import Iterable

from assay.cost.gpu_kernels import AUTOGRAD, CALLER, CUBLAS, libraries, workspaces
from assay.cost.operation import Operation
from assay.cost.simulation.allocator import GRADIENT, Category, Ledger, Storage
from assay.cost.simulation.fsdp_groups import Gathered, ShardedGroup
from assay.cost.step_cost import Cost
from assay.cost.update_rules import Instant

FLOAT32 = 4
"""Bytes of one number."""


class StepNumbers:
    """Numbers that the code of a step holds while the tape is played."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._in_backward: list[Storage] = []
        self._summed = False

    def take(self, count: int = 1) -> list[Storage]:
        """Hold some numbers, until they are dropped or the step ends."""
        return [self._ledger.take(FLOAT32, Category.NUMBER) for _ in range(count)]

    def begin_backward(self) -> None:
        """Hold the loss, its quotient and the quotient's gradient; the tape has released its own loss."""
        self._in_backward = self.take(3)

    def end_backward(self) -> None:
        """Keep the first loss as the sum of all, and add every later one to it."""
        first, *others = self._in_backward
        self._drop([first, *others] if self._summed else others)
        self._summed = True

    def _drop(self, numbers: Iterable[Storage]) -> None:
        for one in numbers:
            self._ledger.drop(one)


class PlayedStage:
    """One stage's part of the tape, and the weights gathered for it."""

    def __init__(self, cost: Cost, chunk: int, sites: tuple[str, ...], ledger: Ledger) -> None:
        inside = [index for index, operation in enumerate(cost.tape) if not sites or operation.within(*sites)]
        self.indices = range(inside[0], inside[-1] + 1)
        self.output = cost.tape[inside[-1]].outputs[0].name if cost.order else None
        """Output of the stage, None without a pipeline. It is kept until the stage's backward, which receives its
        gradient."""
        given = {one.name for one in (*cost.tables, *cost.batch.tensors, *cost.batch.picked)} | cost.parameters.keys()
        elsewhere = [one for one in cost.tape if not one.within(*sites)] if sites else ()
        self.lasting = given.union(one.name for each in elsewhere for one in (*each.outputs, *each.extras))
        """Values that exist before a pass, or belong to another stage on the same rank."""
        operations = [cost.tape[index] for index in self.indices]
        groups = [one for one in cost.sharding.groups if any(each.within(*one.sites) for each in operations)]
        self.gathered = Gathered(tuple(groups), ledger, cost.kernels.copied_gathers)
        self.begins: dict[int, list[ShardedGroup]] = {}
        self.ends: dict[int, list[ShardedGroup]] = {}
        """Groups by the first and by the last operation that needs their weights; outer groups first."""
        for group in groups:
            covered = [index for index in self.indices if cost.tape[index].within(*group.sites)]
            self.begins.setdefault(covered[0], []).append(group)
            self.ends.setdefault(covered[-1], []).append(group)
        blocks = [one for one in cost.block_sites if not sites or one in sites]
        self.watched = frozenset(
            max(index for index in self.indices if cost.tape[index].within(one)) for one in {*blocks[:1], *blocks[-1:]}
        )
        """Last operations of the blocks whose output norms are reported."""
        self.follows_here, self.leads_here = _beside(cost, chunk)
        """Whether the preceding stage, and the following one, are on this rank too."""
        self._sent: list[Storage] = []

    def leave(self, ledger: Ledger, sent: list[Storage]) -> None:
        """Hold the tensors sent to other stages until the next micro-batch has sent its own."""
        for storage in self._sent:
            ledger.drop(storage)
        self._sent = sent


def _beside(cost: Cost, chunk: int) -> tuple[bool, bool]:
    schedule = cost.pipeline.schedule
    if schedule is None:
        return False, False
    here = [schedule.position(cost.place["pp"], one) for one in range(schedule.chunks)]
    return here[chunk] - 1 in here, here[chunk] + 1 in here


class PlayedStep:
    """State that the micro-batches of a step share."""

    def __init__(self, cost: Cost, ledger: Ledger) -> None:
        self.cost = cost
        self.sizes = cost.sizes
        self.plan = cost.lifetimes
        self.ledger = ledger
        self.stages = [PlayedStage(cost, *chunk, self.ledger) for chunk in enumerate(cost.pipeline.stages or ((),))]
        self.gradients: dict[str, Storage] = {}
        """Gradients of parameters, once all uses in a micro-batch have contributed."""
        gpu = cost.kernels.gpu
        self._workspaces = {thread: {} if gpu is None else workspaces(gpu.capability) for thread in (CALLER, AUTOGRAD)}
        """Workspaces that each thread has not taken yet, by library."""

    def multiply(self, operation: Operation, thread: str) -> None:
        """Let a thread take the workspaces of an operation's products, unless it has them."""
        waiting = self._workspaces[thread]
        for library in libraries(operation) if waiting else ():
            self.ledger.workspaces += waiting.pop(library, 0)

    def multiply_back(self, operation: Operation) -> None:
        """Let autograd's thread take the workspace of the products of an operation's backward, unless it has it."""
        waiting = self._workspaces[AUTOGRAD]
        for library in libraries(operation)[:1] if waiting else ():
            self.ledger.workspaces += waiting.pop(library, 0)

    def multiply_again(self) -> None:
        """Take a workspace for the products of the update, because a captured graph keeps that of its own."""
        gpu, cost = self.cost.kernels.gpu, self.cost
        if gpu is not None and cost.optimizer.rule.products(cost.updated):
            self.ledger.workspaces += workspaces(gpu.capability)[CUBLAS]

    def update(self, instants: Iterable[Instant]) -> None:
        """Play instants of the update."""
        for instant in instants:
            numbers = instant.number_bytes if self.cost.kernels.number_bytes else 0
            scratch = [self.ledger.take(instant.nbytes), *self.ledger.take_if(numbers, Category.NUMBER)]
            self.ledger.mark("update", instant.operation, instant.site)
            for storage in scratch:
                self.ledger.drop(storage)
            self.ledger.take_if(instant.kept_bytes, Category.NUMBER)


class Gradients:
    """Gradients of values whose own node has not run yet, and of weights that are not complete."""

    def __init__(self, step: PlayedStep, stage: PlayedStage) -> None:
        self._step, self._stage = step, stage
        self._cost, self._ledger, self._learned = step.cost, step.ledger, step.cost.parameters
        self._together = step.cost.backward.accumulated_together
        self.by_name: dict[str, Storage] = {}
        self._missing = dict(step.plan.readers)
        """Contributions to each parameter's gradient that are still to come."""
        self._complete: list[str] = []
        """Weights whose gradients are complete, and wait until their module's backward has finished."""

    def of_results(self, operation: Operation) -> dict[str, Storage]:
        """The gradients of an operation's outputs, by name."""
        return {one.name: self.by_name[one.name] for one in operation.outputs if one.name in self.by_name}

    def take(self, operation: Operation) -> list[Storage]:
        """Remove the gradients of an operation's outputs, which its node reads."""
        waiting = self.by_name
        return [waiting.pop(one.name) for one in operation.outputs if one.name in waiting]

    def deliver(self, name: str, storage: Storage, operation: Operation) -> None:
        """Add a gradient to the value's earlier one; accumulate a parameter's gradient when it is complete."""
        learned, earlier = name in self._learned, self.by_name.get(name)
        if earlier is not None:
            # Measured: torch's engine for replicas and shards sums a tied weight's gradients in a third tensor.
            shared = bool(self._cost.sharding.groups) and learned
            storage = self._ledger.add(earlier, storage, operation.site, in_place=not shared)
        self.by_name[name] = storage
        if learned:
            self._missing[name] -= 1
            if self._missing[name] == 0:
                if self._together and operation.within(*self._together):
                    self._complete.append(name)
                else:
                    self._accumulate(name)

    def accumulate_complete(self) -> None:
        """Accumulate the complete gradients of a module whose backward has finished."""
        for name in self._complete:
            self._accumulate(name)
        self._complete.clear()

    def _accumulate(self, name: str) -> None:
        """Store a parameter's gradient, or add it to that of earlier micro-batches.

        With updates in backward, use it and free it.
        """
        storage = self.by_name.pop(name)
        if storage.category is not GRADIENT:
            self._ledger.overwrite(storage, GRADIENT, storage.site)
        if self._cost.optimizer.in_backward:
            storage = self._ledger.ordered(storage, name)
            piece = self._cost.pieces[name]
            self._step.update((self._cost.norm_of(piece), *self._cost.instants_of({name: piece})))
            self._ledger.drop(storage)
        elif name not in self._step.gradients:
            self._step.gradients[name] = self._ledger.ordered(storage, name)
        elif self._stage.gathered.widens(name):
            self._stage.gathered.waiting[name] = storage
        else:
            self._ledger.drop(storage)


class Holders:
    """Storages of one micro-batch in a stage, and what is saved of them."""

    def __init__(self, step: PlayedStep, stage: PlayedStage) -> None:
        self.cost, self.plan, self.ledger = step.cost, step.plan, step.ledger
        self.lasting, self.learned = stage.lasting, step.cost.parameters
        self.storages: dict[str, Storage] = {}
        """Storages of the values alive in forward, by name."""
        self.kept: dict[int, list[str]] = {}
        """Names of the storages saved for an operation's backward, by its position on the tape."""
        self.cached: dict[int, list[str]] = {}
        """Names of the results that wait for recomputation, by position."""

    def saved(self) -> set[str]:
        """Names of the storages saved for backward now: without parameters, with the batch and tables."""
        return {name for names in (*self.kept.values(), *self.cached.values()) for name in names}

    def _keep(self, index: int, names: tuple[str, ...]) -> None:
        """Save the storages of `names` until the node at `index` has run; parameters exist anyway."""
        if not names:
            return
        kept, bases, lasting = self.kept.setdefault(index, []), self.plan.base, self.lasting
        for name in names:
            base = bases[name]
            if base not in lasting:
                kept.append(base)
                self.ledger.save(self.storages[base])
            elif base not in self.learned:
                kept.append(base)

    def _cache(self, index: int, operation: Operation) -> None:
        """Keep the results until their module is recomputed."""
        made = [tensor.name for tensor in (*operation.outputs, *operation.extras) if tensor.view_of is None]
        self.cached[index] = made
        for name in made:
            self.ledger.save(self.storages[name])

    def _leave_contexts(self, indices: range) -> None:
        """Release the tensors that forward's contexts held, unless backward needs them."""
        self._release([tensor.name for index in indices for tensor in self.cost.tape[index].outputs if tensor.held])

    def _free_saved(self, index: int) -> None:
        self._release(self.kept.pop(index, ()))

    def _release(self, bases: Iterable[str]) -> None:
        """Remove a holder of each storage, unless it outlasts the micro-batch or is freed already."""
        storages, lasting, drop = self.storages, self.lasting, self.ledger.drop
        for base in bases:
            storage = storages.get(base)
            if storage is not None and base not in lasting:
                drop(storage)
                if storage.holders == 0:
                    del storages[base]
