"""Ranks on a mesh of named axes, as arithmetic without torch or processes; `training` creates the real mesh.

An axis is one way to divide a step, and its degree is the number of parts. The order is fixed, outermost first:
pipeline, data, context, tensor. Ranks along the innermost axis are neighbours, which have the fastest links, and tensor
parallelism sends most often (Narayanan et al. 2021, arXiv:2104.04473, section 5.2). Ranks are numbered in row-major
order, as in torch's `init_device_mesh`. The axes have the names of NVIDIA's NeMo: pp, dp, cp, tp; experts are divided
along dp.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from assay.errors import UsageError

AXES = ("pp", "dp", "cp", "tp")
"""Axes, outermost first."""

MEANING = {"pp": "pipeline", "dp": "data", "cp": "context", "tp": "tensor"}


@dataclass(frozen=True)
class Mesh:
    """Degrees by axis, in the order of `AXES`; an unused axis has degree 1. Raises `UsageError` below 1."""

    pp: int = 1
    dp: int = 1
    cp: int = 1
    tp: int = 1

    def __post_init__(self) -> None:
        for axis in AXES:
            if self.degree(axis) < 1:
                raise UsageError(f"{axis}={self.degree(axis)} is not possible; give a degree of at least 1")

    def degree(self, axis: str) -> int:
        """Number of ranks along an axis."""
        return int(getattr(self, axis))

    @property
    def shape(self) -> tuple[int, ...]:
        """Degrees in the order of `AXES`."""
        return tuple(map(self.degree, AXES))

    @property
    def size(self) -> int:
        """Number of ranks."""
        return prod(self.shape)

    @property
    def replicas(self) -> bool:
        """True if each rank computes what one device does, on its share of the batch."""
        return self.size == self.dp

    def at(self, rank: int) -> dict[str, int]:
        """A rank's index along each axis. Raises `ValueError` if the mesh has no such rank."""
        if not 0 <= rank < self.size:
            raise ValueError(f"there is no rank {rank} among {self.size}")
        place = {}
        for axis in reversed(AXES):
            rank, place[axis] = divmod(rank, self.degree(axis))
        return {axis: place[axis] for axis in AXES}

    def rank(self, place: Mapping[str, int]) -> int:
        """The rank at the given index along each axis; the index of a missing axis is 0."""
        rank = 0
        for axis in AXES:
            rank = rank * self.degree(axis) + place.get(axis, 0)
        return rank

    def groups(self, axis: str) -> list[tuple[int, ...]]:
        """The groups of the collectives along `axis`: ranks that differ in that index only."""
        others = [range(1 if one == axis else self.degree(one)) for one in AXES]
        places = (dict(zip(AXES, indices, strict=True)) for indices in product(*others))
        return [tuple(self.rank({**place, axis: i}) for i in range(self.degree(axis))) for place in places]

    def __str__(self) -> str:
        used = [f"{axis}={self.degree(axis)}" for axis in AXES if self.degree(axis) > 1]
        return " × ".join(used) or "one device"


ONE_DEVICE = Mesh()


def fill(world: int, degrees: Mapping[str, int | None], names: Mapping[str, str] | None = None) -> Mesh:
    """Return the mesh of `world` ranks; one axis at most has the degree None and takes the remaining factor.

    `names` are the words for the axes in an error message. Raises `UsageError` if the degrees do not multiply to
    `world`.
    """
    names = names or {}
    known = {axis: degree for axis, degree in degrees.items() if degree is not None}
    taken, open_axes = Mesh(**known).size, [axis for axis, degree in degrees.items() if degree is None]
    if world < 1:
        raise UsageError(f"a world of {world} ranks is not possible; give at least one")
    if world % taken:
        raise UsageError(
            f"{_said(known, names)} {_verb(known, 'need')} a multiple of {taken} ranks, and there are {world}"
        )
    if not open_axes and taken != world:
        more = "choose other degrees" if "dp" in known else "add a technique that divides the batch"
        raise UsageError(
            f"{_said(known, names)} {_verb(known, 'use')} {taken} of {world} ranks; {more}, or take {taken} ranks"
        )
    return Mesh(**known, **dict.fromkeys(open_axes, world // taken))


def nodes(mesh: Mesh, ranks_per_node: int) -> Iterator[Sequence[int]]:
    """The ranks of each node, in order. Raises `UsageError` if the ranks do not fill whole nodes."""
    if ranks_per_node < 1 or mesh.size % ranks_per_node:
        raise UsageError(
            f"{mesh.size} ranks do not fill nodes of {ranks_per_node}; choose ranks per node that divide {mesh.size}"
        )
    return (range(first, first + ranks_per_node) for first in range(0, mesh.size, ranks_per_node))


def _verb(degrees: Mapping[str, int], verb: str) -> str:
    return f"{verb}s" if len(degrees) == 1 else verb


def _said(degrees: Mapping[str, int], names: Mapping[str, str]) -> str:
    return " × ".join(f"{names.get(axis, axis)}={degree}" for axis, degree in degrees.items()) or "these techniques"
