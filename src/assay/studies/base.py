"""A study as data: what is varied, at which levels, and the rows that follow.

A row is one combination of levels. The first row is the control, with which all others are compared. Every row has a
cell for each seed and each process, and the control has two: the second one is an A/A comparison. A comparison of
optimizations is the study with one factor.

To add a kind of study, drop a file with a subclass of `Study` into `studies/kinds/`, or into the folder `studies` of
`ASSAY_EXTENSIONS`.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Self

from pydantic import ConfigDict, Field, PrivateAttr, WithJsonSchema, field_validator, model_validator

from assay.config.loading import load, stack
from assay.config.run import ResolvedRun, Run
from assay.errors import UsageError
from assay.optimizations import resolve_run
from assay.records.study import BASELINE, Cell, Expectation, Halving, StartFrom, Stated
from assay.studies.constant import HeldQuantity
from assay.studies.design import Treatment, cross_cells, enough
from assay.studies.factors import NONE, OPTIMIZATIONS, Factor, merge_changes, one_line, override_text, text

__all__ = ["Factor", "Study", "at_levels"]


_SEEDS = {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}, "minItems": 1}]}
"""JSON schema of seeds as a file writes them: their number, or a list of them."""


class Study(Stated):
    """A design over a base configuration. Subclasses say which combinations of levels there are."""

    model_config = ConfigDict(strict=True)

    kind: ClassVar[str]
    """Name by which files refer to this kind of study."""
    example: ClassVar[Mapping[str, str]] = {}
    """Texts of fields in a new file (`studies.schema`), for fields whose default would not make a study."""

    by_chance: ClassVar[bool] = False
    """True if chance chooses the rows, so that two of them may be the same run."""

    losses_only: ClassVar[bool] = False
    """True if the study measures no times, so that cells run beside each other."""

    base: str = "demo"
    """Preset or file from which every cell's configuration begins."""
    start_from: StartFrom | None = None
    """An earlier study (its id, its name or last) and a metric; its best row is the base, at seeds of its own."""
    overrides: tuple[str, ...] = ()
    """Overrides ``key=value`` of the base, the same in all cells."""
    seeds: Annotated[int, Field(le=1_000_000), WithJsonSchema(_SEEDS)] = 3
    """Number of seeds of every row, which all rows share: the base's and the next ones. A list names them."""
    at_seeds: tuple[int, ...] | None = None
    """Seeds of every row. None: as `seeds` says."""
    processes: int | None = None
    """Processes of every row at each seed. None: as many as an interval needs."""
    blocks: int = Field(default=5, ge=1)
    """Timed blocks of every cell."""
    constant: HeldQuantity | None = None
    """A quantity that all rows share, such as ``{quantity: tokens}``; a setting of each row is solved for it."""
    timeout: float | None = Field(default=None, gt=0)
    """Largest number of seconds that a cell may work."""

    _base: Run | None = PrivateAttr(None)
    """Configuration of the base, once it is known; that of `start_from` is known when the study runs."""

    @model_validator(mode="before")
    @classmethod
    def _listed_seeds(cls, values: Any) -> Any:
        """Read a list of `seeds` as their number and the seeds themselves."""
        if not isinstance(values, Mapping) or not isinstance(values.get("seeds"), list | tuple):
            named = values.get("at_seeds") if isinstance(values, Mapping) else None
            return values if not isinstance(named, list | tuple) else {**values, "seeds": len(named)}
        if "at_seeds" in values:
            raise ValueError("seeds and at_seeds both list seeds; leave one of them out")
        return {**values, "seeds": len(values["seeds"]), "at_seeds": values["seeds"]}

    @field_validator("seeds", "processes", "blocks", "timeout", "target_loss", "loss_margin", mode="before")
    @classmethod
    def _a_number(cls, value: Any) -> Any:
        if isinstance(value, bool):
            raise ValueError("it should be a number, and YAML reads yes, no, true and false as truth values")
        return value

    @field_validator("name", "question")
    @classmethod
    def _in_one_line(cls, value: str) -> str:
        return one_line(" ".join(value.split()))

    @field_validator("expects", mode="before")
    @classmethod
    def _levels_as_texts(cls, value: Any) -> Any:
        return [_with_texts(one) for one in value] if isinstance(value, list | tuple) else value

    @field_validator("expects")
    @classmethod
    def _lower_by_less_than_all(cls, value: tuple[Expectation, ...]) -> tuple[Expectation, ...]:
        # Records of earlier versions may have such a size, so it is refused in a file of a study only.
        for one in value:
            if one.change == "lower" and one.size >= 1:
                raise ValueError(
                    f"nothing gets lower by {one.size:g} times itself; size is a fraction, such as 0.05 for 5 %"
                )
        return value

    @abstractmethod
    def factors(self) -> tuple[Factor, ...]:
        """Return the factors with their levels."""

    @abstractmethod
    def combinations(self) -> Iterator[Mapping[str, str]]:
        """Yield the level of each factor, row by row. The first row is the control."""

    def notes(self) -> tuple[str, ...]:
        """Return sentences on what the design can and cannot tell, for its plan."""
        return ()

    def idle(self) -> tuple[str, ...]:
        """Return sentences on what the file says and no row follows, for the plan and the answer."""
        return ()

    def on(self, base: Run) -> Self:
        """Return the study with the configuration of its base, for conditions on keys that a row does not set.

        Raises `UsageError` if a condition leaves out the control.
        """
        known = self.model_copy()
        known._base = base
        return known

    def complete(self, values: Mapping[str, str], keys: Iterable[str]) -> dict[str, str]:
        """Return a row's values with the base's own for the keys that it does not set, as far as these are known."""
        missing = [key for key in keys if key not in values]
        if self._base is None and missing and self.start_from is None:
            self._base = load(self.base, self.overrides)
        own = {key: override_text(self._base, key) for key in missing} if self._base is not None else {}
        return {**{key: value for key, value in own.items() if value is not None}, **values}

    def overridden(self) -> tuple[str, ...]:
        """Return the keys that the overrides of the base set, without the one that a constant quantity decides."""
        named = (one.partition("=")[0] for one in self.overrides)
        return tuple(key for key in named if self.constant is None or key != self.constant.key)

    def held(self, run: ResolvedRun, control: ResolvedRun) -> ResolvedRun:
        """Return a row's run with the quantity that is held constant. Raises `UsageError` if that is impossible."""
        return run if self.constant is None else self.constant.held(run, control)

    @property
    def processes_at_each_seed(self) -> int:
        """Processes of every row at each seed: as given, or as many as an interval of a time needs."""
        if self.processes is not None:
            return self.processes
        return 1 if self.losses_only else enough(self.seeds)

    def halving(self) -> Halving | None:
        """Return the rungs of rows whose results decide which rows run next; None if all rows run."""
        return None

    def label(self, levels: Mapping[str, str]) -> str:
        """Return the label of a row: the stack if only optimizations vary, else ``key=level`` of every factor."""
        if tuple(levels) == (OPTIMIZATIONS,):
            return levels[OPTIMIZATIONS]
        return ", ".join(f"{key}={level}" for key, level in levels.items())

    def by_key(self) -> dict[str, Factor]:
        """Return the factors by their keys."""
        return {factor.key: factor for factor in self.factors()}

    def row(
        self, base: Run, levels: Mapping[str, str], factors: Mapping[str, Factor], earlier: Sequence[Treatment]
    ) -> Treatment:
        """Return the row of one combination of levels; the first is the control.

        Raises `UsageError` if a level is impossible, or if an earlier row is the same run and this is no placebo.
        """
        _check_levels(self.kind, levels, factors)
        run = resolve_run(at_levels(base, levels, factors))
        if earlier:
            _check_free(self.constant, self.label(levels), levels, factors)
            run = self.held(run, earlier[0].run)
        placebo = any(factors[key].is_placebo(level) for key, level in levels.items())
        same = next((other.label for other in earlier if other.run == run), None)
        if same is not None and not (placebo or self.by_chance):
            raise UsageError(f"{self.label(levels)!r} and {same!r} are the same run; leave one of them out")
        return Treatment(self.label(levels) if earlier else BASELINE, levels, run, placebo)

    def rows(self, base: Run) -> tuple[Treatment, ...]:
        """Return the rows, the control first.

        Raises `UsageError` if there are fewer than two, if a level is impossible, or if two rows are the same run.
        """
        factors, found = self.by_key(), list[Treatment]()
        for levels in self.combinations():
            found.append(self.row(base, levels, factors, found))
        if len(found) < 2:
            raise UsageError(f"the study {self.kind!r} has nothing to compare with its control; add levels")
        return tuple(found)

    def cells(self, base: Run) -> tuple[Cell, ...]:
        """Return the cells of every row. Raises `UsageError` as `rows` and `cross_cells`."""
        return cross_cells(self.rows(base), self.seeds_from(base.seed), self.processes_at_each_seed)

    def seeds_from(self, first: int) -> tuple[int, ...]:
        """Return the seeds of every row: those that are listed, or as many as there should be from `first` on.

        Raises `UsageError` if there is none, or if one is no seed of a run.
        """
        if self.seeds < 1:
            raise UsageError(f"seeds={self.seeds} is not possible; a study needs at least one seed")
        seeds = tuple(range(first, first + self.seeds)) if self.at_seeds is None else self.at_seeds
        if wrong := [one for one in seeds if not 0 <= one < 2**63]:
            raise UsageError(f"seeds has {wrong[0]}, which is no seed; give numbers from 0 to 2^63 − 1")
        return seeds


def _with_texts(expected: Any) -> Any:
    """Return an expectation as a file has it, with the levels of its effect as texts of overrides."""
    if not isinstance(expected, Mapping) or not isinstance(expected.get("effect"), Mapping):
        return expected
    return {**expected, "effect": {str(key): text(level) for key, level in expected["effect"].items()}}


def _check_levels(kind: str, levels: Mapping[str, str], factors: Mapping[str, Factor]) -> None:
    """Raise `UsageError` if a combination of a user's kind of study does not have one declared level of each factor."""
    if levels.keys() != factors.keys():
        raise UsageError(f"the study {kind!r} combines {', '.join(levels)}; its factors are {', '.join(factors)}")
    for key, level in levels.items():
        if not isinstance(level, str):
            raise UsageError(f"the study {kind!r} has {key}={level!r}; levels are texts, as in an override")
        if level not in factors[key].levels:
            raise UsageError(f"the study {kind!r} has {key}={level}, which its factors do not declare")


def _check_free(
    constant: HeldQuantity | None, label: str, levels: Mapping[str, str], factors: Mapping[str, Factor]
) -> None:
    """Raise `UsageError` if a level sets the setting that a constant quantity decides."""
    if constant is None:
        return
    setting = {key for name, level in levels.items() for key in factors[name].at(level)}
    if constant.key in setting:
        raise UsageError(
            f"the row {label!r} sets {constant.key}, which decides the constant {constant.quantity}; leave it out, or "
            "name another key as by"
        )


def at_levels(base: Run, levels: Mapping[str, str], factors: Mapping[str, Factor]) -> Run:
    """Return the base with each factor at its level. Raises `UsageError` for an impossible level."""
    try:
        changes = merge_changes(factors[key].at(level) for key, level in levels.items())
    except ValueError as error:
        raise UsageError(str(error)) from error
    if "seed" in changes:
        raise UsageError("seed cannot be varied, because all rows share their seeds; give their number as seeds")
    overrides = [f"{key}={value}" for key, value in changes.items() if key != OPTIMIZATIONS]
    named = changes.get(OPTIMIZATIONS, NONE)
    return load(base, overrides, () if named == NONE else stack([named]))
