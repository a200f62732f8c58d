"""Weights that are gathered for the time in which their module runs: torch's FSDP2, as bytes that come and go.

A group is a block's weights, or those of a stage that are in no block. Before a forward its pieces are gathered into a
message, and from that copied into weights of full size; the message is freed when the next one has been copied. With
`reshard` the weights go after the module's forward, and come again before its backward, when the message of the group
that comes next is already on its way. After backward the gradients are copied into a message and freed, and what this
rank keeps of their sum is a piece of it; that message stays until the next group's. Pieces are padded to equal rows
(arXiv:2304.11277; read off torch 2.13's `_fully_shard`); gloo gathers into a copy first. In a pipeline weights and
gradients stay until its last backward is over, and then groups are summed one by one, the outermost first. Replicas are
the same engine with pieces that are whole: weights are copied, and nothing is gathered. Where gradients are summed in a
wider dtype than they come in, those of the first of several micro-batches are lifted once its backward is through with
the group, and later ones are added to them. Pieces in the host's memory come to the device while their message is made,
and what is kept of a sum goes as soon as it is there (read off torch; not measured).
"""

from dataclasses import dataclass, field

from assay.cost.ledger import Ledger, Storage


@dataclass(frozen=True)
class Group:
    """Weights that are gathered, freed and summed together."""

    sites: tuple[str, ...]
    """Modules during which they are there."""
    weights: tuple[str, ...]
    whole_bytes: int
    """Of all of them as they are gathered, padded."""
    summed_bytes: int
    """Of their gradients as these are summed: the dtype of a sum may be wider."""
    ranks: int
    """Among which they are divided; 1 for replicas."""
    axis: str
    """Along which gradients are summed."""
    reshard: bool
    """Whether they go between forward and backward."""
    on_host: bool = False
    """Whether what this rank keeps of them, and of their gradients, lies in the host's memory."""

    @property
    def widens(self) -> bool:
        """Whether gradients are lifted to be summed: those of a micro-batch, once its backward is through with them."""
        return self.summed_bytes != self.whole_bytes


@dataclass
class Gathered:
    """The groups of one stage while a step is played. Outer groups come first."""

    groups: tuple[Group, ...]
    ledger: Ledger
    copied: bool
    """Whether a message on its way takes its bytes twice."""
    weights: dict[Group, Storage] = field(default_factory=dict)
    messages: dict[Group, Storage] = field(default_factory=dict)
    """Gathered ahead of time."""
    last_message: Storage | None = None
    """Of the newest gathering in forward."""
    summed: Storage | None = None
    """The newest message of gradients."""
    waiting: dict[str, Storage] = field(default_factory=dict)
    """Gradients of a later micro-batch, by weight, until they are added to the lifted ones."""

    def before_forward(self, group: Group) -> None:
        """Have the weights there."""
        if group in self.weights:
            return
        message = self._message(group, "forward")
        self._free_last()
        self.weights[group] = self.ledger.take(group.whole_bytes)
        self.ledger.mark("forward", "all_gather", group.sites[0])
        self.last_message = message

    def after_forward(self, group: Group) -> None:
        """Free what comes again."""
        if group.reshard:
            self.ledger.drop(self.weights.pop(group))

    def leave_forward(self) -> None:
        """The stage's forward is over."""
        self._free_last()

    def before_backward(self, group: Group) -> None:
        """Have the weights there, and send for those of the group whose backward comes next."""
        if group not in self.weights:
            message = self.messages.pop(group, None) or self._message(group, "backward")
            self.weights[group] = self.ledger.take(group.whole_bytes)
            self.ledger.mark("backward", "all_gather", group.sites[0])
            if message is not None:
                self.ledger.drop(message)
        following = self._following(group)
        if following is not None and following not in self.weights and following not in self.messages:
            ahead = self._message(following, "backward")
            if ahead is not None:
                self.messages[following] = ahead

    def after_backward(self, group: Group) -> None:
        """Free the weights."""
        self.ledger.drop(self.weights.pop(group))

    def widens(self, weight: str) -> bool:
        """Whether a weight's gradients of several micro-batches are added in a wider dtype."""
        return any(group.widens and weight in group.weights for group in self.groups)

    def add_waiting(self, group: Group) -> None:
        """Add this micro-batch's gradients to those of earlier ones."""
        for name in group.weights:
            if name in self.waiting:
                self.ledger.drop(self.waiting.pop(name))

    def lift(self, group: Group, gradients: dict[str, Storage]) -> None:
        """Lift the gradients of the first of several micro-batches, one after the other."""
        for name in group.weights if group.widens else ():
            narrow = gradients[name]
            gradients[name] = self.ledger.take(narrow.nbytes * group.summed_bytes // group.whole_bytes)
            self.ledger.mark("backward", "gradient lift", group.sites[0])
            self.ledger.drop(narrow)

    def sum_gradients(self, group: Group, gradients: list[Storage]) -> None:
        """Exchange the whole gradients for this rank's piece of their sum."""
        self.leave_backward()
        self.summed = self.ledger.take(group.summed_bytes)
        self.ledger.mark("backward", "gradient message", group.sites[0])
        for gradient in gradients:
            self.ledger.drop(gradient)
        own = self.ledger.take(group.summed_bytes // group.ranks)
        self.ledger.mark("backward", "reduce_scatter", group.sites[0])
        if group.on_host:
            self.ledger.drop(own)

    def leave_backward(self) -> None:
        """Free the newest message of gradients: another one follows, or the stage's backward is over."""
        if self.summed is not None:
            self.ledger.drop(self.summed)
        self.summed = None

    def _message(self, group: Group, phase: str) -> Storage | None:
        if group.ranks == 1:
            return None
        if group.on_host:
            own = self.ledger.take(group.whole_bytes // group.ranks)
        message = self.ledger.take(group.whole_bytes)
        if group.on_host:
            self.ledger.mark(phase, "all_gather", group.sites[0])
            self.ledger.drop(own)
        if self.copied:
            copy = self.ledger.take(group.whole_bytes)
            self.ledger.mark(phase, "all_gather", group.sites[0])
            self.ledger.drop(copy)
        return message

    def _free_last(self) -> None:
        if self.last_message is not None:
            self.ledger.drop(self.last_message)
        self.last_message = None

    def _following(self, group: Group) -> Group | None:
        """The one whose backward comes next: of the outermost the last inner one, which ran just before it ended."""
        outer, *inner = self.groups
        if group is outer:
            return inner[-1] if inner else None
        place = inner.index(group)
        return inner[place - 1] if place else None
