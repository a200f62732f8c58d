"""The interface of a law: a form with named constants, and one law of that form; the registry, and shared arithmetic.

A `Form` is a formula such as E + A/N^α + B/D^β. A `Law` is a form with its constants, published or fitted. A form
states how N and C are counted, and where its formula is from. Fits, bootstraps, extrapolation and profiles know this
interface only.

A fit moves one value for each constant: its logarithm where the constant is positive by nature. So A, B and E are
fitted as logarithms, and exponents as they are. Each printed constant is a monotone function of one value, and so an
interval of the value is an interval of the constant.

To add laws, drop a file into the folder, or into the folder `scaling` of `ASSAY_EXTENSIONS`.
"""

import importlib
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Literal

import numpy as np
from scipy.special import expit, logit

from assay.config.extensions import extension_folder, modules
from assay.errors import UsageError
from assay.scaling.points import FLOPS_PER_PARAMETER_AND_TOKEN, Floats, Points, planned_points

_NEARLY_ZERO = 1e-4
"""Constants of this size are losses or counts that are nothing."""
Extent = Literal["flops", "parameters", "tokens"]
"""Column in which a law extrapolates: points are held out by it."""


@dataclass(frozen=True)
class Constant:
    """One constant of a form, and how its value is fitted."""

    symbol: str
    logarithmic: bool = True
    """The value of a fit is the logarithm of the constant."""
    unit: float = 1.0
    """Printed constants are in this unit, such as the FLOPs of a PF-day."""
    least: float = 0.0
    """A logarithmic constant is at least so large; the value is the logarithm of what is above."""
    most: float = math.inf
    """A logarithmic constant is at most so large; the value is then the logarithm of its odds, x / (most − x)."""
    decides: bool = False
    """The other constants mean something else at another value of this one: they are known only if it is."""

    def printed(self, value: float) -> float:
        """Return the constant as papers print it."""
        if not self.logarithmic:
            return float(value)
        with np.errstate(over="ignore"):
            above = np.exp(value) / self.unit if math.isinf(self.most) else (self.most - self.least) * expit(value)
        return float(self.least + above)

    def value(self, printed: float) -> float:
        """Return the value of a fit for a printed constant; infinite at a limit."""
        if not self.logarithmic:
            return float(printed)
        above = printed - self.least
        return float(np.log(above * self.unit) if math.isinf(self.most) else logit(above / (self.most - self.least)))

    def reaches_limit(self, ends: tuple[float, float]) -> bool:
        """Return whether an interval reaches a limit, within 5 %."""
        return 0 < ends[0] < 1.05 * self.least or ends[1] > 0.95 * self.most

    def limit(self, printed: float) -> float | None:
        """Return the limit at which a fitted constant lies, within 1e-4 or 1 %; None if it lies at none."""
        if self.logarithmic and printed < max(1.01 * self.least, _NEARLY_ZERO):
            return self.least
        return self.most if printed > 0.99 * self.most else None


@dataclass(frozen=True, eq=False)
class Form(ABC):
    """A formula of the loss with constants, which knows how to be fitted."""

    name: str
    """The name that users write after `--law`."""
    formula: str
    source: str
    counts: str
    """Count of N and C: with or without embeddings; 6·N·D, counted, or C_min."""
    constants: tuple[Constant, ...]
    needs: tuple[str, ...]
    """Columns of `Points` that the formula uses."""
    extent: Extent = "flops"
    published: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Printed constants by their source; those of different sources or formulas are never mixed."""
    reach: float | None = None
    """Largest extent of the runs behind the published constants; None if no paper states it."""

    @abstractmethod
    def log_losses(self, values: Floats, points: Points) -> tuple[Floats, Floats]:
        """Return log L `[fits, points]` and its slopes by each value `[fits, points, k]`, from values `[fits, k]`.

        The loss of `points` is not read. Raises `UsageError` if a column is missing.
        """

    @abstractmethod
    def starts(self, points: Points) -> Floats:
        """Return values `[starts, k]` from which fits to the points may begin."""

    def optimum(self, values: Floats, flops: float) -> tuple[float, float] | None:
        """Return the N and D of the lowest loss at 6·N·D = `flops`; None for a law without such an optimum."""
        return None

    @property
    def may_have_optimum(self) -> bool:
        """True if a law of this form has such an optimum where its loss falls with both size and data."""
        return type(self).optimum is not Form.optimum

    @property
    def least_points(self) -> int:
        """Fewest points of a fit: one more than constants."""
        return len(self.constants) + 1

    def of(self, *printed: float) -> "Law":
        """Return the law of constants as papers print them."""
        return Law(self, tuple(one.value(number) for one, number in zip(self.constants, printed, strict=True)))

    def known(self, source: str) -> "Law":
        """Return the law of a published source. Raises `UsageError` with the known ones."""
        if source not in self.published:
            there = f"there are those of {', '.join(self.published)}" if self.published else "fit it to points"
            raise UsageError(
                f"the law {self.name} has no published constants{f' of {source!r}' if source else ''}; {there}"
            )
        return self.of(*self.published[source])


@dataclass(frozen=True)
class Law:
    """A form with its constants."""

    form: Form
    numbers: tuple[float, ...]
    """One value for each constant, as fits have them."""

    @property
    def values(self) -> Floats:
        """The values as an array."""
        return np.array(self.numbers)

    @property
    def printed(self) -> dict[str, float]:
        """The constants as papers print them, by their symbols."""
        pairs = zip(self.form.constants, self.numbers, strict=True)
        return {constant.symbol: constant.printed(value) for constant, value in pairs}

    def losses(self, points: Points) -> Floats:
        """Return the loss at each point, whose own loss is not read."""
        return np.asarray(np.exp(log_losses([self], points)[0]))

    def loss(self, parameters: "Floats | float", tokens: "Floats | float") -> Floats:
        """Return the loss of models with N parameters that train on D tokens, for a law of N, D or both."""
        shape = np.broadcast_shapes(np.shape(parameters), np.shape(tokens))
        return self.losses(planned_points(parameters=parameters, tokens=tokens)).reshape(shape)

    def optimum(self, flops: float) -> tuple[float, float]:
        """Return the N and D with the lowest loss at 6·N·D = `flops`. Raises `UsageError` if the form has none."""
        found = self.form.optimum(self.values, flops)
        if found is not None:
            return found
        if not self.form.may_have_optimum:
            raise UsageError(f"the law {self.form.name} has no best size for a compute; hoffmann has one")
        raise UsageError(
            f"no size is best under this fit of {self.form.name}, because its loss does not fall with both size and "
            "data; fit points in which it does"
        )


def log_losses(laws: Sequence[Law], points: Points) -> Floats:
    """Return log L of laws of one form at points, `[laws, points]`."""
    return laws[0].form.log_losses(np.array([law.numbers for law in laws]), points)[0]


def log_slopes(law: Law, points: Points) -> Floats:
    """Return for each value of a law the largest change of log L that it causes at any of the points, `[k]`."""
    return np.asarray(np.abs(np.nan_to_num(law.form.log_losses(law.values[None], points)[1][0])).max(axis=0))


def log_sum(*terms: Floats) -> tuple[Floats, list[Floats]]:
    """Return the logarithm of a sum, and the share of each term in it, from the logarithms of the terms.

    Terms are `[fits, points]`. Nothing overflows, unless a term does.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        most = np.maximum.reduce(np.broadcast_arrays(*terms))
        exps = [np.exp(term - most) for term in terms]
        total = np.asarray(sum(exps))
        return most + np.log(total), [one / total for one in exps]


def columns(values: Floats) -> list[Floats]:
    """Return each value of fits as a column `[fits, 1]`, which spreads over points."""
    return [one[:, None] for one in values.T]


def slopes(*each: Floats) -> Floats:
    """Return slopes by each value as one array, `[fits, points, k]`."""
    return np.stack(np.broadcast_arrays(*each), axis=-1)


def line(logs: Floats, losses: Floats) -> tuple[float, float]:
    """Return the level and the exponent of a power law through points: log L = level − exponent · log x."""
    slope, level = np.polyfit(logs, np.log(losses), 1)
    return float(level), float(-slope)


def balance(size: tuple[float, float], data: tuple[float, float], flops: float) -> tuple[float, float] | None:
    """Return the N and D that minimize A/N^α + B/D^β at 6·N·D = `flops`, from (log A, α) and (log B, β).

    It is equation 4 of Hoffmann et al. 2022. None if the loss does not fall with both.
    """
    (a, alpha), (b, beta) = size, data
    if not (alpha > 0 and beta > 0 and np.isfinite((a, b, alpha, beta)).all()):
        return None
    each, both = flops / FLOPS_PER_PARAMETER_AND_TOKEN, alpha + beta
    scale = np.exp((np.log(alpha) + a - np.log(beta) - b) / both)
    return float(scale * each ** (beta / both)), float(each ** (alpha / both) / scale)


_FRAME = {"__init__", "base", "power"}
_FIRST = ("hoffmann", "kaplan")
"""Modules whose laws are listed first, in this order. Others follow by name."""


def forms() -> dict[str, Form]:
    """Return every law's form by name.

    Raises `UsageError` for a file of the user's that cannot be imported, has no form, or whose name is taken.
    """
    return dict(_known(extension_folder("scaling")))


def form_named(name: str) -> Form:
    """Return the form of a law. Raises `UsageError` with the known names for an unknown one."""
    known = forms()
    if name not in known:
        raise UsageError(f"there is no law {name!r}; there are {', '.join(known)}")
    return known[name]


@cache
def _known(folder: Path | None) -> dict[str, Form]:
    """Forms of the package and of another folder, whose files are imported once."""
    others = sorted({path.stem for path in Path(__file__).parent.glob("*.py")} - _FRAME - {*_FIRST})
    found: dict[str, Form] = {}
    own = (importlib.import_module(f"{__package__}.{name}") for name in (*_FIRST, *others))
    for module in (*own, *(modules(folder, "scaling") if folder else ())):
        _add(module, found)
    return found


def _add(module: ModuleType, found: dict[str, Form]) -> None:
    """Add the forms that a module defines; one that it imports from an earlier module is none of its own."""
    defined = {id(value): value for value in vars(module).values() if isinstance(value, Form)}
    own = [form for form in defined.values() if form not in found.values()]
    if not own:
        raise UsageError(f"{module.__file__} defines no law; define an assay.scaling.laws.Form in it")
    for form in own:
        if form.name in found:
            raise UsageError(f"{module.__file__} defines the law {form.name!r}, which exists; choose another name")
        found[form.name] = form


@dataclass(frozen=True, eq=False, kw_only=True)
class PowerLaw(Form):
    """(x_c/x)^α of one column of the points; its values are log x_c and α."""

    of_column: str

    def log_losses(self, values: Floats, points: Points) -> tuple[Floats, Floats]:
        """Return log L and its slopes."""
        logs = points.log(self.of_column)
        scale, power = columns(values)
        return power * (scale - logs), slopes(power * np.ones_like(logs), scale - logs)

    def starts(self, points: Points) -> Floats:
        """Return the line through the logarithms, and steeper and flatter ones through their mean."""
        logs, losses = points.log(self.of_column), np.log(points.loss)
        _, power = line(logs, points.loss)
        powers = max(abs(power), 1e-3) * np.array([1.0, 0.5, 2.0])
        return np.stack([losses.mean() / powers + logs.mean(), powers], axis=1)
