"""Facts about a tape that are needed to play it: the last use of each storage, and the recomputed segments."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from assay.cost.layers import is_composed_norm
from assay.cost.operation import Gradient, Operation
from assay.cost.step_parts import Backward
from assay.cost.tape import Tape
from assay.cost.tensor import Tensor, alter

Returned = tuple[str, Gradient]
"""An input of an operation that has a gradient, and the storage of that."""


@dataclass(frozen=True)
class Segment:
    """Consecutive operations that are recomputed in backward, as positions on the tape."""

    first: int
    last: int
    stop: int
    """Last operation that saves something: recomputation ends there (pytorch/pytorch#96866)."""
    end: int
    """First operation that is not recomputed. An operation that saves only its inputs does so before it executes."""
    stops_within: bool
    """True if the operation at `stop` is composed of several, and recomputation ends before the one that makes its
    result."""
    cached: frozenset[int]
    """Operations whose results stay allocated from the first forward on, so that they are not recomputed."""
    inputs: tuple[str, ...]
    """Earlier storages that the segment reads, without parameters and tables. The first forward saves only these and
    the results in `cached`."""

    @property
    def runs(self) -> frozenset[int]:
        """Operations that are recomputed."""
        return frozenset(range(self.first, self.end)) - self.cached


@dataclass(frozen=True)
class Lifetimes:
    """Storages, gradients and segments of a tape."""

    base: dict[str, str]
    """The storage behind each value: the value itself, unless it is a view."""
    last_use: dict[str, int]
    """Last operation that reads, holds or makes each storage."""
    returned: Sequence[Sequence[Returned]]
    """Gradients that backward of each operation returns."""
    readers: dict[str, int]
    """Number of operations that contribute a gradient to each parameter."""
    dying: dict[int, list[str]]
    """Storages that are released after an operation, by its position; without tensors that a context holds."""
    segments: tuple[Segment, ...]
    hands_over: frozenset[int]
    """First operations of the modules that accumulate all their gradients together, after the backward of this
    operation."""

    def read_last(self, index: int, operation: Operation) -> tuple[str, ...]:
        """Storages that the operation at `index` is the last to read, and does not save."""
        kept = {self.base[name] for name in operation.saves}
        read = dict.fromkeys(self.base[name] for name in operation.inputs)
        return tuple(base for base in read if base not in kept and self.last_use[base] == index)


def lifetimes_of(
    tape: Tape, values: Mapping[str, Tensor], learned: Collection[str], tables: Collection[str], backward: Backward
) -> Lifetimes:
    """Return the lifetimes of a tape, of which some values are learned and some are constant tables."""
    base: dict[str, str] = {}
    for name, tensor in values.items():
        base[name] = name if tensor.view_of is None else base[tensor.view_of]
    last_use: dict[str, int] = {}
    returned: list[list[Returned]] = []
    none = Gradient.NONE
    for index, operation in enumerate(tape):
        for name in operation.inputs + operation.holds:
            last_use[base[name]] = index
        for tensor in operation.outputs + operation.extras:
            last_use[base[tensor.name]] = index
        pairs = zip(operation.inputs, operation.gradients, strict=True)
        returned.append([one for one in pairs if one[1] is not none])
    readers = Counter([name for each in returned for name, _ in each if name in learned])
    dying: dict[int, list[str]] = {}
    for name, index in last_use.items():
        if not values[name].held:
            dying.setdefault(index, []).append(name)
    recomputed, together = backward.recomputed, backward.accumulated_together
    inside, lasting = _positions(tape, {*recomputed, *together}), {*learned, *tables}
    # A module above which nothing is trained saves nothing, and has no backward in which it could be recomputed.
    saving = [site for site in recomputed if any(tape[index].saves for index in inside[site])]
    segments = tuple(_segment(tape, site, inside[site], base, lasting, backward) for site in saving)
    begins = (inside[site][0] for site in together)
    ordered = tuple(sorted(segments, key=lambda segment: segment.first))
    return Lifetimes(base, last_use, returned, readers, dying, ordered, frozenset(begins))


def _positions(tape: Tape, sites: set[str]) -> dict[str, list[int]]:
    """Positions of the operations within each of some modules."""
    found: dict[str, list[int]] = {site: [] for site in sites}
    for index, operation in enumerate(tape) if sites else ():
        module = operation.site
        while module:
            if module in found:
                found[module].append(index)
            module = module.rpartition(".")[0]
    return found


def _segment(
    tape: Tape, site: str, inside: list[int], base: dict[str, str], lasting: set[str], backward: Backward
) -> Segment:
    operations = [tape[index] for index in inside]
    made = {tensor.name for operation in operations for tensor in (*operation.outputs, *operation.extras)}
    read = dict.fromkeys(base[name] for operation in operations for name in operation.inputs)
    stop = max(index for index in inside if tape[index].saves)
    outside = tuple(name for name in read if name not in made and name not in lasting)
    # Compiled code does not keep the last operation's result, because recomputation does not read it.
    needed = [index for index in inside if index < stop or site not in backward.accumulated_together]
    cached = frozenset(index for index in needed if tape[index].kind in backward.kept_results)
    end = stop + _keeps_its_own(tape[stop])
    return Segment(
        first=inside[0],
        last=inside[-1],
        stop=stop,
        end=end,
        stops_within=_is_composed(tape[stop]),
        cached=cached,
        inputs=outside,
    )


def before_product(operation: Operation) -> Operation:
    """The composed operation up to the product that makes its result.

    An RMS norm squares its input before it normalizes it. The mean of the squares is as large as the deviation, and
    exists with it and the squares.
    """
    mean = operation.extras[:1] if is_composed_norm(operation) else ()
    return alter(operation, outputs=(), scratch=operation.scratch._replace(forward=mean))


def _keeps_its_own(operation: Operation) -> bool:
    return not {tensor.name for tensor in (*operation.outputs, *operation.extras)}.isdisjoint(operation.saves)


def _is_composed(operation: Operation) -> bool:
    """True if it ends in a product that saves an earlier result: an RMS norm, or dropout with a float noise tensor."""
    if operation.compiled:
        return False
    noise = [one for one in operation.extras if one.dtype != "bool"]
    return is_composed_norm(operation) or (operation.name == "aten.mul" and bool(noise))
