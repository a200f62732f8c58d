"""A study as data: what is varied, at which levels, and the rows that follow.

A row is one combination of levels. The first row is the control, with which all others are compared. Every row has a
cell for each seed and each process, and the control has two: the second one is an A/A comparison. A comparison of
optimizations is the study with one factor.

To add a kind of study, drop a file with a subclass of `Study` into `studies/kinds/`, or into the folder `studies` of
`ASSAY_EXTENSIONS`.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

from pydantic import field_validator

from assay.config.base import Setting
from assay.config.loading import load, stack
from assay.config.run import Run
from assay.errors import UsageError
from assay.optimizations import resolved
from assay.records.study import BASELINE, Cell
from assay.studies.design import Treatment, crossed, enough

OPTIMIZATIONS = "optimizations"
NONE = "none"
"""Level of the factor `optimizations` that turns none on."""


class Factor(NamedTuple):
    """One thing that a study varies."""

    key: str
    """A configuration key such as `training.learning_rate`, or `optimizations`."""
    levels: tuple[str, ...]
    """Values of the key as they are written in an override, or stacks such as ``"sdpa_attention+lion"``."""


class Study(Setting):
    """A design over a base configuration. Subclasses say which combinations of levels there are."""

    kind: ClassVar[str]
    """Name by which files refer to this kind of study."""

    question: str = ""
    """The question that the study answers, in one sentence."""
    base: str = "demo"
    """Preset or file from which every cell's configuration begins."""
    overrides: tuple[str, ...] = ()
    """Overrides ``key=value`` of the base, the same in all cells."""
    seeds: int = 3
    """Number of seeds of every row; all rows share them."""
    processes: int | None = None
    """Processes of every row at each seed. None: as many as an interval needs."""
    blocks: int = 5
    """Timed blocks of every cell."""
    timeout: float | None = None
    """Largest number of seconds that a cell may work."""

    @field_validator("seeds", "processes", "blocks", "timeout", mode="before")
    @classmethod
    def _a_number(cls, value: Any) -> Any:
        if isinstance(value, bool):
            raise ValueError("it should be a number, and YAML reads yes, no, true and false as truth values")
        return value

    @abstractmethod
    def factors(self) -> tuple[Factor, ...]:
        """Return the factors with their levels."""

    @abstractmethod
    def combinations(self) -> Iterator[Mapping[str, str]]:
        """Yield the level of each factor, row by row. The first row is the control."""

    def rows(self, base: Run) -> tuple[Treatment, ...]:
        """Return the rows, the control first.

        Raises `UsageError` if there are fewer than two, if a level is impossible, or if two rows are the same run.
        """
        found: list[Treatment] = []
        declared = {factor.key: factor.levels for factor in self.factors()}
        if "seed" in declared:
            raise UsageError("seed cannot be varied, because all rows share their seeds; give their number as seeds")
        for levels in self.combinations():
            _check_levels(self.kind, levels, declared)
            run = resolved(at_levels(base, levels))
            same = next((row.label for row in found if row.run == run), None)
            if same is not None:
                raise UsageError(f"{label(levels)!r} and {same!r} are the same run; leave one of them out")
            found.append(Treatment(label(levels) if found else BASELINE, levels, run))
        if len(found) < 2:
            raise UsageError(f"the study {self.kind!r} has nothing to compare with its control; add levels")
        return tuple(found)

    def cells(self, base: Run) -> tuple[Cell, ...]:
        """Return the cells of every row. Raises `UsageError` as `rows` and `crossed`."""
        processes = enough(self.seeds) if self.processes is None else self.processes
        return crossed(self.rows(base), base.seed, self.seeds, processes)


def _check_levels(kind: str, levels: Mapping[str, str], declared: Mapping[str, tuple[str, ...]]) -> None:
    """Raise `UsageError` if a combination of a user's kind of study does not have one declared level of each factor."""
    if levels.keys() != declared.keys():
        raise UsageError(f"the study {kind!r} combines {', '.join(levels)}; its factors are {', '.join(declared)}")
    for key, level in levels.items():
        if not isinstance(level, str):
            raise UsageError(f"the study {kind!r} has {key}={level!r}; levels are texts, as in an override")
        if level not in declared[key]:
            raise UsageError(f"the study {kind!r} has {key}={level}, which its factors do not declare")


def at_levels(base: Run, levels: Mapping[str, str]) -> Run:
    """Return the base with each factor at its level. Raises `UsageError` for an impossible level."""
    overrides = [f"{key}={level}" for key, level in levels.items() if key != OPTIMIZATIONS]
    named = levels.get(OPTIMIZATIONS, NONE)
    return load(base, overrides, () if named == NONE else stack([named]))


def label(levels: Mapping[str, str]) -> str:
    """Return the label of a row: the stack if only optimizations vary, else ``key=level`` of every factor."""
    if tuple(levels) == (OPTIMIZATIONS,):
        return levels[OPTIMIZATIONS]
    return ", ".join(f"{key}={level}" for key, level in levels.items())
