"""What must be known of a tape before it is played: when each storage is last touched, and which parts run twice."""

from collections import Counter
from dataclasses import dataclass

from assay.cost.step import Cost
from assay.cost.tape import Gradient, Operation


@dataclass(frozen=True)
class Segment:
    """Consecutive operations that run again in backward, as positions on the tape."""

    first: int
    last: int
    stop: int
    """The last one that keeps something: recomputation ends there (pytorch/pytorch#96866)."""
    end: int
    """The first one that does not run again: what keeps only its inputs keeps them before it runs."""
    stops_within: bool
    """Whether the last one to run is composed of several, and stops in front of the one that makes its result."""
    cached: frozenset[int]
    """Those whose results stay from the first forward on, so that they do not run again."""
    inputs: tuple[str, ...]
    """What they read from before, parameters left out: all else that the first forward keeps."""

    @property
    def runs(self) -> frozenset[int]:
        """Those that run again."""
        return frozenset(range(self.first, self.end)) - self.cached


@dataclass(frozen=True)
class Plan:
    """A tape's bookkeeping."""

    base: dict[str, str]
    """The storage behind each value: itself, unless it is a view."""
    last_use: dict[str, int]
    """By storage: the last operation that reads or makes it."""
    readers: dict[str, int]
    """By parameter: how many operations hand it a gradient."""
    segments: tuple[Segment, ...]
    hands_over: frozenset[int]
    """The first operations of modules whose gradients wait for them."""


def plan(cost: Cost) -> Plan:
    """Read a tape once."""
    values = cost.values
    base: dict[str, str] = {}
    for name, tensor in values.items():
        base[name] = name if tensor.view_of is None else base[tensor.view_of]
    last_use: dict[str, int] = {}
    readers: Counter[str] = Counter()
    for index, operation in enumerate(cost.tape):
        touched = (
            *operation.inputs,
            *operation.holds,
            *(tensor.name for tensor in (*operation.outputs, *operation.extras)),
        )
        last_use.update({base[name]: index for name in touched})
        readers.update(
            name
            for name, how in zip(operation.inputs, operation.gradients, strict=True)
            if name in cost.parameters and how is not Gradient.NONE
        )
    segments = tuple(_segment(cost, site, base) for site in cost.recomputed)
    begins = (next(i for i, one in enumerate(cost.tape) if one.within(site)) for site in cost.handed_together)
    ordered = tuple(sorted(segments, key=lambda segment: segment.first))
    return Plan(base, last_use, dict(readers), ordered, frozenset(begins))


def _segment(cost: Cost, site: str, base: dict[str, str]) -> Segment:
    inside = [index for index, operation in enumerate(cost.tape) if operation.within(site)]
    operations = [cost.tape[index] for index in inside]
    made = {tensor.name for operation in operations for tensor in (*operation.outputs, *operation.extras)}
    lasting = set(cost.parameters) | {tensor.name for tensor in cost.tables}
    read = dict.fromkeys(base[name] for operation in operations for name in operation.inputs)
    stop = max(index for index in inside if cost.tape[index].saves)
    outside = tuple(name for name in read if name not in made and name not in lasting)
    # Compiled code keeps no result that nobody reads again, as the last one's is.
    needed = [index for index in inside if index < stop or site not in cost.handed_together]
    cached = frozenset(index for index in needed if cost.tape[index].kind in cost.kept_results)
    end = stop + _keeps_its_own(cost.tape[stop])
    return Segment(
        first=inside[0],
        last=inside[-1],
        stop=stop,
        end=end,
        stops_within=_is_composed(cost.tape[stop]),
        cached=cached,
        inputs=outside,
    )


def _keeps_its_own(operation: Operation) -> bool:
    return not {tensor.name for tensor in (*operation.outputs, *operation.extras)}.isdisjoint(operation.saves)


def _is_composed(operation: Operation) -> bool:
    """Whether it ends in a product that keeps what was made before: a mean-square norm, or dropout by a wide noise."""
    if operation.compiled:
        return False
    noise = [one for one in operation.extras if one.dtype != "bool"]
    return operation.name == "aten._fused_rms_norm" or (operation.name == "aten.mul" and bool(noise))
