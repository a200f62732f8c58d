"""Techniques of a search with their parameters, and every stack of them that may be combined.

An element is a technique with fixed fields, such as one number of micro-batches. Compatibility follows from what
techniques state of themselves: claims, traits, needs, exclusions and checks. Each statement becomes a mask of bits, so
that a hundred thousand stacks take a fraction of a second. `optimizations.check` states the same for one run.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from assay.config.run import ResolvedRun, Scalar, Spec
from assay.errors import UsageError
from assay.hardware import Machine
from assay.optimizations import catalogue, mesh_of, optimizations_of, resolve_run
from assay.optimizations.optimization import Numerics, Optimization


@dataclass(frozen=True)
class Element:
    """A technique with its fields, as a search adds it to a run."""

    one: Optimization
    spec: Spec
    """The technique as a user writes it: fields at their defaults are left out."""

    @property
    def order(self) -> tuple[int, str]:
        """Place in the order of application."""
        return self.one.stage, self.one.name()

    def __str__(self) -> str:
        return str(self.spec)


Stack = tuple[Element, ...]
"""Elements in the order of application."""


def stack_text(stack: Stack) -> str:
    """Return a stack as a user writes it after ``--with``; empty for none."""
    return "+".join(map(str, stack))


def with_stack(run: ResolvedRun, stack: Stack) -> ResolvedRun:
    """Return a run with further techniques. Raises `UsageError` as `optimizations.resolve_run`."""
    specs = (*run.optimizations, *(each.one.spec() for each in stack))
    return resolve_run(run.model_copy(update={"optimizations": specs}))


def elements(run: ResolvedRun, machine: Machine) -> tuple[tuple[Element, ...], tuple[Element, ...]]:
    """Return the elements that a run may have beside its own techniques, and those of them that train differently.

    Both are in the order of application. An element that this machine or this run excludes by itself is left out.
    """
    given = {one.name() for one in optimizations_of(run)}
    found: list[Element] = []
    for name, kind in catalogue().items():
        if name not in given:
            found += [Element(one, Spec(name=name, fields=dict(fields))) for fields, one in _variants(kind, run)]
    able = sorted((each for each in found if _able(each.one, run, machine)), key=lambda each: each.order)
    differs = [each.one.promised is Numerics.DIFFERENT_TRAINING for each in able]
    return (
        tuple(each for each, other in zip(able, differs, strict=True) if not other),
        tuple(each for each, other in zip(able, differs, strict=True) if other),
    )


def _variants(kind: type[Optimization], run: ResolvedRun) -> Iterator[tuple[Mapping[str, Scalar], Optimization]]:
    for fields in kind.choices(run):
        yield fields, kind.model_validate(dict(fields))


def _able(one: Optimization, run: ResolvedRun, machine: Machine) -> bool:
    if one.axes() and run.ranks == 1:
        return False
    try:
        one.check(run, machine)
    except UsageError:
        return False
    return True


class Compatible:
    """Statements of elements about each other, as masks over their positions."""

    def __init__(self, run: ResolvedRun, machine: Machine, found: Sequence[Element]) -> None:
        self.run, self.found = run, found
        self._given = optimizations_of(run)
        count = len(found)
        bears = [each.one.bears() for each in found]
        given = frozenset().union(*(one.bears() for one in self._given))
        excludes = [frozenset(each.one.excludes(run)) for each in found]
        self.alone = [
            not excludes[i] & given
            and not any(frozenset(one.excludes(run)) & bears[i] for one in self._given)
            and not any(one.claims & found[i].one.claims for one in self._given)
            for i in range(count)
        ]
        """Whether each element goes with the run's own techniques."""
        self.against = [
            sum(1 << j for j in range(count) if j != i and self._clash(i, j, bears, excludes)) for i in range(count)
        ]
        """Elements with which each cannot be combined."""
        self.wanted = [self._wants(i, machine, given, bears) for i in range(count)]
        """Sets of elements, of each of which a stack with the element has at least one."""
        self._cuts = [each.one.cuts() for each in found]
        self._given_cuts = [one.cuts() for one in self._given]
        self._rows = run.sequences_per_step

    def _clash(self, i: int, j: int, bears: list[frozenset[str]], excludes: list[frozenset[str]]) -> bool:
        one, other = self.found[i].one, self.found[j].one
        named = one.name() == other.name() or bool(one.claims & other.claims)
        return named or bool(excludes[i] & bears[j]) or bool(excludes[j] & bears[i])

    def _wants(self, i: int, machine: Machine, given: frozenset[str], bears: list[frozenset[str]]) -> list[int]:
        one, claims = self.found[i].one, frozenset().union(*(each.claims for each in self._given))
        offers = [sum(1 << j for j, each in enumerate(self.found) if n in each.one.claims) for n in one.needs - claims]
        for trait in one.requires(self.run, machine).keys() - given:
            offers.append(sum(1 << j for j in range(len(bears)) if j != i and trait in bears[j]))
        return offers

    def stacks(self) -> Iterator[tuple[int, ...]]:
        """Yield the positions of each compatible stack, the empty one first."""
        yield from self._extended((), 0, 0, 0)

    def _extended(self, chosen: tuple[int, ...], mask: int, barred: int, start: int) -> Iterator[tuple[int, ...]]:
        if self._complete(chosen, mask):
            yield chosen
        for i in range(start, len(self.found)):
            if self.alone[i] and not barred >> i & 1:
                yield from self._extended((*chosen, i), mask | 1 << i, barred | self.against[i], i + 1)

    def _complete(self, chosen: tuple[int, ...], mask: int) -> bool:
        return all(mask & offer for i in chosen for offer in self.wanted[i]) and self._divides(chosen)

    def _divides(self, chosen: tuple[int, ...]) -> bool:
        """True if ranks and micro-batches divide the batch."""
        ranks = self._ranks(chosen) if self.run.ranks > 1 else 1
        if ranks is None:
            return False
        cuts = [*self._given_cuts, *(each for i in chosen if (each := self._cuts[i]) > 1)]
        return self._rows % ranks == 0 and all(self._rows // ranks % each == 0 for each in cuts)

    def _ranks(self, chosen: tuple[int, ...]) -> int | None:
        """Return the ranks among which a stack divides the batch; None if it does not divide all."""
        specs = _specs(self.run, tuple(self.found[i] for i in chosen))
        try:
            mesh = mesh_of(self.run.model_copy(update={"optimizations": specs}))
        except UsageError:
            return None
        return mesh.dp if mesh.size == self.run.ranks else None


def _specs(run: ResolvedRun, stack: Stack) -> tuple[Spec, ...]:
    return (*run.optimizations, *(each.one.spec() for each in stack))
