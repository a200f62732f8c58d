"""State that the micro-batches of a step share while it is played: the ledger, gradients of parameters, and stages.

Without a pipeline there is one stage with all modules.
"""

from collections.abc import Iterable

from assay.cost.operation import Operation
from assay.cost.optimizers.updates import Instant
from assay.cost.simulation.allocator import Category, Ledger, Storage
from assay.cost.simulation.fsdp_groups import Gathered, Group
from assay.cost.step import Cost
from assay.cost.workspaces import AUTOGRAD, CALLER, CUBLAS, libraries, workspaces


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
        self.begins: dict[int, list[Group]] = {}
        self.ends: dict[int, list[Group]] = {}
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
