"""Weights that are gathered only while their module runs, as bytes allocated and freed by torch's FSDP2.

A group is a block's weights, or those of a stage that are in no block. Before a forward its shards are gathered into a
message, and copied from that into weights of full size. The message is freed when that of the next group has been
gathered. With `reshard` the weights are freed after the module's forward, and gathered again before its backward. The
message of the group that is next in backward is gathered at the same time.

After backward the gradients are copied into a message and freed, and this rank keeps a shard of their sum. That message
stays until the next group's. Shards are padded to equal rows (arXiv:2304.11277; read off torch 2.13's `_fully_shard`).
Gloo gathers into a copy first. In a pipeline weights and gradients stay until the stage's last backward has ended.
Groups are then summed one by one, the outermost first.

Replicas are the same engine with undivided weights: these are copied, and nothing is gathered. If gradients are summed
in a wider dtype, those of the first of several micro-batches are widened after the group's backward. Later ones are
added to them. This rank's shards are then first cast to the narrow dtype, into one copy that lives until its message
has been gathered (`_get_param_all_gather_inputs`). Shards in the host's memory are copied to the device in its place.
The shard of a sum is moved to the host as soon as it is computed (both of the host read off torch; not measured).
"""

from dataclasses import dataclass, field

from assay.cost.simulation.allocator import Category, Ledger, Storage


@dataclass(frozen=True)
class ShardedGroup:
    """Weights that are gathered, freed and summed together."""

    sites: tuple[str, ...]
    """Modules that read the weights."""
    weights: tuple[str, ...]
    trained: tuple[str, ...]
    """Weights that have a gradient."""
    whole_bytes: int
    """Bytes of all weights as they are gathered, padding included."""
    summed_bytes: int
    """Bytes of all gradients as they are summed."""
    widening: int
    """Bytes of a gradient's number as it is summed, over those of a gathered weight's."""
    ranks: int
    """Number of ranks among which the weights are divided; 1 for replicas."""
    axis: str
    """Axis along which gradients are summed."""
    reshard: bool
    """True if the weights are freed between forward and backward."""
    on_host: bool = False
    """True if this rank's shards of weights and gradients are stored in the host's memory."""

    @property
    def widens(self) -> bool:
        """True if gradients are widened to be summed, each micro-batch's after its backward of the group."""
        return self.widening > 1


@dataclass
class Gathered:
    """The groups of one stage while a step is played, outer groups first."""

    groups: tuple[ShardedGroup, ...]
    ledger: Ledger
    copied: bool
    """True if a collective allocates a second message while it runs."""
    weights: dict[ShardedGroup, Storage] = field(default_factory=dict)
    messages: dict[ShardedGroup, Storage] = field(default_factory=dict)
    """Messages gathered ahead of time."""
    last_message: Storage | None = None
    """Message of the latest gather in forward."""
    summed: Storage | None = None
    """The latest message of gradients."""
    waiting: dict[str, Storage] = field(default_factory=dict)
    """Gradients of a later micro-batch, by weight, until they are added to the widened ones."""

    def before_forward(self, group: ShardedGroup) -> None:
        """Gather the weights."""
        if group in self.weights:
            return
        message = self._message(group, "forward")
        self._free_last()
        self.weights[group] = self.ledger.take(group.whole_bytes, Category.GATHERED)
        self.ledger.mark("forward", "all_gather", group.sites[0])
        self.last_message = message

    def after_forward(self, group: ShardedGroup) -> None:
        """Free the weights if backward gathers them again."""
        if group.reshard:
            self.ledger.drop(self.weights.pop(group))

    def leave_forward(self) -> None:
        """Free the last message, because the stage's forward has ended."""
        self._free_last()

    def before_backward(self, group: ShardedGroup) -> None:
        """Gather the weights, and the message of the group whose backward comes next."""
        if group not in self.weights:
            message = self.messages.pop(group, None) or self._message(group, "backward")
            self.weights[group] = self.ledger.take(group.whole_bytes, Category.GATHERED)
            self.ledger.mark("backward", "all_gather", group.sites[0])
            if message is not None:
                self.ledger.drop(message)
        following = self._following(group)
        if following is not None and following not in self.weights and following not in self.messages:
            ahead = self._message(following, "backward")
            if ahead is not None:
                self.messages[following] = ahead

    def after_backward(self, group: ShardedGroup, gradients: dict[str, Storage], *, first: bool, last: bool) -> None:
        """Free the weights; sum the gradients after the last micro-batch, or widen those of the first."""
        self._add_waiting(group)
        self.ledger.drop(self.weights.pop(group))
        if last:
            self._sum_gradients(group, [gradients.pop(name) for name in group.trained])
        elif first:
            self._lift(group, gradients)

    def widens(self, weight: str) -> bool:
        """True if a weight's gradients of several micro-batches are added in a wider dtype."""
        return any(group.widens and weight in group.weights for group in self.groups)

    def _add_waiting(self, group: ShardedGroup) -> None:
        """Add this micro-batch's gradients to those of earlier ones."""
        for name in group.trained:
            if name in self.waiting:
                self.ledger.drop(self.waiting.pop(name))

    def _lift(self, group: ShardedGroup, gradients: dict[str, Storage]) -> None:
        """Widen the gradients of the first of several micro-batches, one after the other."""
        for name in group.trained if group.widens else ():
            narrow = gradients[name]
            wide = narrow.nbytes * group.widening
            gradients[name] = self.ledger.take(wide, Category.GRADIENT)
            self.ledger.mark("backward", "gradient lift", group.sites[0])
            self.ledger.drop(narrow)

    def _sum_gradients(self, group: ShardedGroup, gradients: list[Storage]) -> None:
        """Reduce-scatter the whole gradients to this rank's shard of their sum."""
        self.leave_backward()
        if not gradients:
            return
        self.summed = self.ledger.take(group.summed_bytes, Category.MESSAGE)
        self.ledger.mark("backward", "gradient message", group.sites[0])
        # Where several ranks sum, a loop's variable holds the last gradient, and gloo copies the message.
        held = gradients[-1:] if group.ranks > 1 else []
        for gradient in gradients[: len(gradients) - len(held)]:
            self.ledger.drop(gradient)
        own = self.ledger.take(group.summed_bytes // group.ranks, Category.GRADIENT)
        if self.copied and group.ranks > 1:
            held.append(self.ledger.take(group.summed_bytes, Category.MESSAGE))
        self.ledger.mark("backward", "reduce_scatter", group.sites[0])
        for one in held:
            self.ledger.drop(one)
        if group.on_host:
            self.ledger.drop(own)

    def leave_backward(self) -> None:
        """Free the latest message of gradients: another one follows, or the stage's backward has ended."""
        if self.summed is not None:
            self.ledger.drop(self.summed)
        self.summed = None

    def _message(self, group: ShardedGroup, phase: str) -> Storage | None:
        if group.ranks == 1:
            return None
        passing = []
        if group.on_host or group.widens:
            passing.append(self.ledger.take(group.whole_bytes // group.ranks, Category.MESSAGE))
        message = self.ledger.take(group.whole_bytes, Category.MESSAGE)
        if self.copied:
            passing.append(self.ledger.take(group.whole_bytes, Category.MESSAGE))
        if passing:
            self.ledger.mark(phase, "all_gather", group.sites[0])
        for one in passing:
            self.ledger.drop(one)
        return message

    def _free_last(self) -> None:
        if self.last_message is not None:
            self.ledger.drop(self.last_message)
        self.last_message = None

    def _following(self, group: ShardedGroup) -> ShardedGroup | None:
        """The group whose backward comes next: the last inner one after the outermost, else the inner one before."""
        outer, *inner = self.groups
        if group is outer:
            return inner[-1] if inner else None
        place = inner.index(group)
        return inner[place - 1] if place else None
