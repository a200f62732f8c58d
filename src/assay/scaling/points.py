"""Points of trained models: size, tokens, FLOPs and loss, and their accounting of FLOPs.

Two of N, D and C suffice, because the third follows from C = 6·N·D. A law of one quantity needs only that one. N counts
embeddings or not as the file does, and a law that is fitted to it counts the same. C_min, S_min and unique tokens are
columns of their own: they never follow from others without a stated conversion.

The FLOPs of points may differ from 6·N·D. N may leave out embeddings, attention may be counted, or text may be
counted once for all its passes. A law of N and D does not notice, and its answer to a budget then costs another
budget. So the ratio is fitted as a power of N, and answers are those whose FLOPs, as the points count them, are what
was asked. Between the smallest and the largest size of the points the power holds; beyond them it stays at the nearest
size's.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from assay.errors import UsageError
from assay.scaling.points_file import NAMES, PointsTable, columns_of, lacking, read_table
from assay.units import format_count

Floats = npt.NDArray[np.float64]

FLOPS_PER_PARAMETER_AND_TOKEN = 6.0
"""C = 6·N·D: two FLOPs a weight forward and four backward (Kaplan et al. 2020)."""

QUANTITIES: Mapping[str, str] = {
    "parameters": "parameters",
    "tokens": "tokens",
    "flops": "FLOPs",
    "compute": "FLOPs",
    "min_flops": "C_min",
    "min_steps": "S_min",
    "unique_tokens": "unique tokens",
}
"""Columns that laws use, and those in which they extrapolate, as units of a number."""
LIMITS: Mapping[str, tuple[float, float]] = {
    "loss": (1e-6, 1e6),
    "parameters": (1e3, 1e20),
    "tokens": (1e3, 1e20),
    "counted_flops": (1e3, 1e40),
    "min_flops": (1e3, 1e40),
    "min_steps": (1.0, 1e20),
    "unique_tokens": (1.0, 1e20),
}
"""Least and most of each quantity. Sizes in billions, such as 70, are outside."""

_CONTENT = "points"
_MOST_APART = 10.0
"""Factor by which FLOPs in a file may differ from 6·N·D; attention and embeddings explain less."""


@dataclass(frozen=True)
class Points:
    """Points of trained models, as arrays of one length. NaN stands for what is not known."""

    parameters: Floats
    tokens: Floats
    loss: Floats
    counted_flops: Floats | None = None
    """Training FLOPs as the runs were counted, where they are known; else 6·N·D stands for them."""
    min_flops: Floats | None = None
    """C_min: FLOPs of a training at a batch far below the critical one."""
    min_steps: Floats | None = None
    """S_min: steps of a training at a batch far above the critical one."""
    unique_tokens: Floats | None = None
    """Tokens that differ, where a run repeats its text."""
    trunk: Floats | None = None
    """Number of the trunk of each point, equal for those that share first steps; None if all points are independent."""

    @property
    def flops(self) -> Floats:
        """Training FLOPs, 6·N·D; as counted where N or D is not known."""
        product = FLOPS_PER_PARAMETER_AND_TOKEN * self.parameters * self.tokens
        counted = self.counted_flops if self.counted_flops is not None else self.min_flops
        return product if counted is None else np.where(np.isnan(product), counted, product)

    @property
    def compute(self) -> Floats:
        """Training FLOPs as counted, or else 6·N·D."""
        return self.flops if self.counted_flops is None else self.counted_flops

    def column(self, name: str) -> Floats | None:
        """Return a column by its name; None if any of its values is not known."""
        values = getattr(self, name)
        return None if values is None or np.isnan(values).any() else values

    def log(self, name: str) -> Floats:
        """Return the logarithms of a column. Raises `UsageError` if the points lack it."""
        values = self.column(name)
        if values is None:
            raise UsageError(f"the law needs a column {NAMES.get(name, (name,))[0]}, which the points lack")
        return np.log(values)

    def __len__(self) -> int:
        return len(self.loss)

    def where(self, chosen: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> "Points":
        """Return some of the points: those of a mask, or at some indices."""
        return replace(self, **{name: one[chosen] for name, one in vars(self).items() if one is not None})

    @property
    def drawn_together(self) -> npt.NDArray[np.intp]:
        """Number of the group of each point, which a bootstrap draws as one: its trunk, or the point alone.

        Runs of one trunk have the same weights and batches up to their branches, so they err together. Drawn as single
        points, they would count as more evidence than they are. Intervals would be too narrow (Cameron, Gelbach and
        Miller 2008, Review of Economics and Statistics 90).
        """
        names = np.arange(len(self), dtype=float) if self.trunk is None else self.trunk
        _, first, place = np.unique(names, return_index=True, return_inverse=True)
        return np.argsort(np.argsort(first))[place]  # numbered by their first points, and not by their names

    def in_order(self) -> "Points":
        """Return the points by N, D and loss, so that nothing depends on the order in which they were given."""
        keys = [values for values in vars(self).values() if values is not None]
        return self.where(np.lexsort(keys[::-1]))

    def without_highest(self, count: int) -> "Points":
        """Return the points without those of the highest losses."""
        kept = np.ones(len(self), dtype=bool)
        kept[np.argsort(self.loss, kind="stable")[max(0, len(self) - count) :]] = False
        return self.where(kept)


def trunk_numbers(names: Sequence[str]) -> Floats | None:
    """Return a number for each trunk of several points; those without a name have numbers of their own."""
    if not any(names):
        return None
    numbers = {name: float(number) for number, name in enumerate(dict.fromkeys(filter(None, names)))}
    return np.array([numbers.get(name, -1.0 - place) for place, name in enumerate(names)])


def planned_points(**columns: "Floats | float | None") -> Points:
    """Return points whose loss is not known yet, from columns of `Points`; single numbers are repeated."""
    given = {name: values for name, values in columns.items() if values is not None}
    arrays = np.broadcast_arrays(*(np.atleast_1d(np.asarray(values, dtype=float)) for values in given.values()))
    unknown = np.full(arrays[0].shape, np.nan)
    return Points(**{"parameters": unknown, "tokens": unknown, "loss": unknown} | dict(zip(given, arrays, strict=True)))


def points_table(path: Path) -> PointsTable:
    """Read a CSV file of points once, which a pipe allows. Raises `UsageError`."""
    return read_table(path, _CONTENT)


def read_points(
    source: Path | PointsTable, needs: Collection[str] = ("parameters", "tokens"), named: str | None = None
) -> Points:
    """Read points from a CSV file, or from its table, whose first line names the columns; a law needs some of them.

    `named` says which columns they are where the headings do not, as ``n=HEADING,loss=HEADING:bits``. Raises
    `UsageError` with one sentence if the file cannot be read, lacks a column, or has an impossible number.
    """
    table = source if isinstance(source, PointsTable) else points_table(source)
    columns = {
        kind: np.asarray(table.numbers(one.heading, *LIMITS[kind], one.convert))
        for kind, one in columns_of(table, named).items()
    }
    _check_columns(columns, needs, table)
    found = replace(_completed(columns), trunk=trunk_numbers(_texts(table, "trunk") or ()))
    if {"parameters", "tokens", "counted_flops"} <= set(columns):
        _check_units(found.flops, columns["counted_flops"], table)
    return found


def heading_by_byte(table: PointsTable, named: str | None = None) -> str:
    """Return the heading of a file's losses if they are per byte of text, else nothing. Raises as `read_points`."""
    loss = columns_of(table, named).get("loss")
    return loss.heading if loss is not None and loss.by_byte else ""


def run_names(table: PointsTable) -> list[str] | None:
    """Return the column `run` of a CSV file; None if it has none."""
    return _texts(table, "run")


def _texts(table: PointsTable, name: str) -> list[str] | None:
    """Return a column of texts; None if the file has none."""
    return [row[name] or "" for row in table.rows] if name in table.rows[0] else None


def _check_columns(columns: Mapping[str, Floats], needs: Collection[str], table: PointsTable) -> None:
    of_three = {"parameters", "tokens", "counted_flops"}
    if "loss" not in columns or (
        {"parameters", "tokens"} <= set(needs) and len(of_three & set(columns)) < len(of_three) - 1
    ):
        raise lacking(table, "a column loss, and two of the columns parameters, tokens and flops")


def _completed(columns: Mapping[str, Floats]) -> Points:
    """Return points whose N or D follows from the two others of N, D and C."""
    found = planned_points(**columns)
    each = found.flops / FLOPS_PER_PARAMETER_AND_TOKEN
    return replace(
        found,
        parameters=np.where(np.isnan(found.parameters), each / found.tokens, found.parameters),
        tokens=np.where(np.isnan(found.tokens), each / found.parameters, found.tokens),
    )


def _check_units(counted: Floats, given: Floats, table: PointsTable) -> None:
    """Raise `UsageError` if the FLOPs of a file cannot be those of its sizes and tokens."""
    apart = np.abs(np.log(given / counted))
    worst = int(np.argmax(apart))
    if apart[worst] > np.log(_MOST_APART):
        raise UsageError(
            f"{table.path}, line {table.lines[worst]}: flops={given[worst]:g}, but 6·N·D is {counted[worst]:g}; "
            "give parameters, tokens and FLOPs as plain counts"
        )


def check(points: Points, needs: Collection[str], least: int, name: str) -> None:
    """Raise `UsageError` if points are too many, or determine no law that needs some columns and `least` points."""
    for column, title in _TITLES.items():
        values = getattr(points, column) if column in ("loss", *needs) else points.column(column)
        if column in needs and (values is None or np.isnan(values).all()):
            raise UsageError(f"{name} lacks the column {NAMES.get(column, (column,))[0]}, which the law needs")
        if values is not None:
            _check_numbers(values, LIMITS[_LIMITED_AS.get(column, column)], title, name)
    if len(points) < least:
        count = f"{len(points)} point{'' if len(points) == 1 else 's'}"
        raise UsageError(f"{name} has {count}; the law needs at least {least}")
    if len(points) > MOST_POINTS:
        raise UsageError(f"{name} has {len(points):,} points; a law is fitted to at most {MOST_POINTS:,}")
    for column in needs:
        different = len(np.unique(getattr(points, column)))
        if different < _LEAST_DIFFERENT:
            count = f"one {_TITLES[column]} only" if different == 1 else f"only {different} values of {_TITLES[column]}"
            raise UsageError(f"{name} has {count}; the law needs at least {_LEAST_DIFFERENT}")
    if len(np.unique(points.loss)) < 2:
        raise UsageError(f"{name} has equal losses only; a law needs losses that fall with size or data")
    _check_copies(points, name)


def _check_numbers(values: Floats, ends: tuple[float, float], title: str, name: str) -> None:
    if not np.all((values > 0) & np.isfinite(values)):
        raise UsageError(f"{name} has a {title} that is not positive; leave that point out")
    outside = (values < ends[0]) | (values > ends[1])
    if outside.any():
        raise UsageError(
            f"{name} has a {title} of {values[outside][0]:g}; write plain numbers, from {ends[0]:g} to {ends[1]:g}"
        )


def _check_copies(points: Points, name: str) -> None:
    columns = (values for name, values in vars(points).items() if values is not None and name != "trunk")
    rows = np.nan_to_num(np.stack(list(columns), axis=1))
    first: dict[bytes, int] = {}
    for place, row in enumerate(rows):
        before = first.setdefault(row.tobytes(), place)
        if before != place:
            raise UsageError(
                f"{name} has the same point twice, as its points {before + 1} and {place + 1}; leave the copies out, "
                "or they count double"
            )


MOST_POINTS = 50_000
"""Points of a fit, which needs 35 KiB and 3 ms of each."""
_LEAST_DIFFERENT = 3
_LIMITED_AS = {"compute": "counted_flops"}
"""Columns that have the limits of another one."""
_TITLES = {
    "loss": "loss",
    "parameters": "model size",
    "tokens": "number of tokens",
    "compute": "number of FLOPs",
    "min_flops": "C_min",
    "min_steps": "S_min",
    "unique_tokens": "number of unique tokens",
}
"""Columns that laws use, in words."""


LEAST = 0.03
"""Relative difference of FLOPs from 6·N·D from which they contradict it."""
_STEEPEST = -0.9
"""Least power of N; at −1 all sizes would cost the same."""
_FLAT = 0.02
"""Relative change of the ratio over all sizes below which it has no trend."""


@dataclass(frozen=True)
class Accounting:
    """The ratio of counted FLOPs to 6·N·D, level · N^power between two sizes."""

    level: float = 1.0
    power: float = 0.0
    sizes: tuple[float, float] = (1.0, 1.0)
    """Smallest and largest N of the points."""
    ends: tuple[float, float] = (1.0, 1.0)
    """Smallest and largest ratio of a point."""

    @property
    def plain(self) -> bool:
        """True if FLOPs are 6·N·D."""
        return self.ends == (1.0, 1.0)

    def factor(self, parameters: "Floats | float") -> Floats:
        """Return the FLOPs of a training of such a size over its 6·N·D: one that is among those of the points."""
        return np.clip(self.level * np.clip(parameters, *self.sizes) ** self.power, *self.ends)

    def flops(self, parameters: "Floats | float", tokens: "Floats | float") -> Floats:
        """Return the FLOPs of a training as the points count them."""
        product = FLOPS_PER_PARAMETER_AND_TOKEN * np.asarray(parameters) * tokens
        return np.asarray(product if self.plain else self.factor(parameters) * product)

    def tokens(self, parameters: "Floats | float", flops: "Floats | float") -> Floats:
        """Return the tokens on which such a size trains for so many FLOPs."""
        each = np.asarray(flops) / FLOPS_PER_PARAMETER_AND_TOKEN / parameters
        return np.asarray(each if self.plain else each / self.factor(parameters))

    def parameters(self, tokens: "Floats | float", flops: "Floats | float") -> Floats:
        """Return the size that trains on so many tokens for so many FLOPs."""
        plain = np.asarray(flops) / FLOPS_PER_PARAMETER_AND_TOKEN / tokens
        first, last = (plain / self.factor(size) for size in self.sizes)
        between = (plain / self.level) ** (1 / (1 + self.power))
        found = np.where(first < self.sizes[0], first, np.where(last > self.sizes[1], last, between))
        return np.asarray(plain / np.clip(plain / found, *self.ends))

    @property
    def warning(self) -> str:
        """Sentence on the ratio and its trend; empty if FLOPs are 6·N·D."""
        if self.plain:
            return ""
        low, high = self.ends
        spread = "" if high / low < 1 + _FLAT else f" ({low:.3g} to {high:.3g})"
        middle = float(self.factor(float(np.sqrt(np.prod(self.sizes)))))
        first, last = (float(self.factor(size)) for size in self.sizes)
        trend = ", about the same at all sizes"
        if abs(last / first - 1) >= _FLAT:
            way = "falls" if last < first else "grows"
            named = [f"{one:.3g} at {format_count(size)}" for one, size in zip((first, last), self.sizes, strict=True)]
            trend = f". The factor {way} with size, from {named[0]} to {named[1]} parameters"
        return (
            f"FLOPs of these points are {middle:.3g} times 6·N·D{spread}{trend}. N may leave out embeddings, "
            "attention may be counted, or tokens may be those of one pass of several."
        )


PLAIN = Accounting()
"""FLOPs are 6·N·D."""


def accounting(points: Points) -> Accounting:
    """Return how points count FLOPs: `PLAIN` if they do not, or if all of them are within 3 % of 6·N·D."""
    product = FLOPS_PER_PARAMETER_AND_TOKEN * points.parameters * points.tokens
    if points.counted_flops is None or np.isnan(points.counted_flops + product).any():
        return PLAIN
    ratios = points.counted_flops / product
    if np.abs(ratios - 1).max() < LEAST:
        return PLAIN
    sizes, logs = np.log(points.parameters), np.log(ratios)
    several = len(np.unique(points.parameters)) > 1
    power, level = np.polyfit(sizes, logs, 1) if several else (0.0, logs.mean())
    ends = float(points.parameters.min()), float(points.parameters.max())
    if power < _STEEPEST:
        power, level = _STEEPEST, float(np.mean(logs - _STEEPEST * sizes))
    return Accounting(float(np.exp(level)), float(power), ends, (float(ratios.min()), float(ratios.max())))


def spent_flops(points: Points) -> Floats:
    """Return the FLOPs of points, as they count them if that contradicts 6·N·D."""
    return points.flops if accounting(points).plain else points.compute
