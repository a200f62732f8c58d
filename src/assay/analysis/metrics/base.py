"""A metric: a figure of a run that a comparison compares with the baseline's. The folder is the registry of all.

All places that name a figure read this one object: the analysis, JSON and data frames, the printed table, the page.

To add metrics, drop a file into the folder, or into the folder `metrics` of `ASSAY_EXTENSIONS`.

A user's metrics are tried before a comparison spends hours on runs that they could not read. The record of the trial
has a number in every figure. It shows faults of the metric itself: a field that no record has, a name that is not
defined, a result that is no number. A metric may ask for more than the trial has, such as `proof.trace`; such errors
are no faults.
"""

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from assay.config.extensions import extension_folder, modules, own_line
from assay.config.run import ResolvedRun
from assay.errors import UsageError, first_line
from assay.records.prediction import Predicted
from assay.records.run import RunResult
from assay.records.timing import Block

Unit = Literal["bytes", "seconds", "per_second", "nats", "count", "ratio"]
Better = Literal["lower", "higher"]
Kind = Literal["exact", "timed", "loss"]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One metric. A fault in its definition raises `UsageError`."""

    name: str
    """Key in JSON and data frames, with its base unit: ``step_seconds``."""
    title: str
    """Heading of its column."""
    unit: Unit
    better: Better
    kind: Kind
    """`exact` repeats exactly, `timed` is measured in each timed block, and `loss` is compared seed by seed."""
    meaning: str
    """Sentence on the page about how the figure is made."""
    shown: bool = True
    """True if it is a column of the table and of the page; JSON and data frames have every metric."""
    predicted: bool = False
    """True if the estimator predicts it, under the same name in `Predicted`."""
    of: Callable[[RunResult], float | None] | None = None
    """Figure of a run. A timed metric may have it too: it then replaces blocks that were not recorded.

    Of a timed metric in bytes, a row has the largest `of` of its runs.
    """
    of_block: Callable[[Block], float | None] | None = None
    """Figure of one timed block, for timed metrics. It is positive, because its logarithms are compared."""
    per_step: Callable[[ResolvedRun], float] | None = None
    """Amount of one optimizer step, for rates: a row's figure is this amount divided by its step time."""

    def __post_init__(self) -> None:
        choices = {"unit": Unit, "better": Better, "kind": Kind}
        for field, allowed in choices.items():
            if getattr(self, field) not in get_args(allowed):
                raise self._fault(f"has {field}={getattr(self, field)!r}; choose {' or '.join(get_args(allowed))}")
        needed = "of_block" if self.kind == "timed" else "of"
        if getattr(self, needed) is None:
            raise self._fault(f"is of the kind {self.kind!r} and has no function {needed!r}; define it")
        if self.predicted and self.name not in Predicted.model_fields:
            raise self._fault("has predicted=True, but the estimator does not predict it; leave that out")

    def of_run(self, result: RunResult) -> float | None:
        """Return the figure of a run; None if it has none."""
        return None if self.of is None else self.of(result)

    def _fault(self, sentence: str) -> UsageError:
        return UsageError(f"the metric {self.name!r} {sentence}")


_FRAME = {"__init__", "base"}
_FIRST = ("standard", "gradients")
"""Modules whose metrics are the first columns, in this order. Metrics of others follow by name."""


def metrics() -> dict[str, Metric]:
    """Return every metric by name, in the order of columns.

    Raises `UsageError` for a file of the user's that cannot be imported, has no metric, or whose name is taken.
    """
    return dict(_known(extension_folder("metrics")))


def check_own(config: ResolvedRun) -> None:
    """Try the metrics of the user's folder on the record of a trial. Raises `UsageError` for one that fails."""
    every, ours = metrics(), _known(None)
    try_metrics({name: one for name, one in every.items() if name not in ours}, config)


@cache
def _known(folder: Path | None) -> dict[str, Metric]:
    """Metrics of the package and of another folder, whose files are imported once."""
    found: dict[str, Metric] = {}
    for name in _FIRST:
        _add(_own(name), found)
    first = len(found)
    others = sorted({path.stem for path in Path(__file__).parent.glob("*.py")} - _FRAME - {*_FIRST})
    for module in (*map(_own, others), *(modules(folder, "metrics") if folder else ())):
        _add(module, found)
    names = list(found)
    return {name: found[name] for name in (*names[:first], *sorted(names[first:]))}


def _own(name: str) -> ModuleType:
    return importlib.import_module(f"{__package__}.{name}")


def _add(module: ModuleType, found: dict[str, Metric]) -> None:
    """Add the metrics that a module defines; one that it imports from an earlier module is none of its own."""
    earlier = {id(metric) for metric in found.values()}
    defined = {id(value): value for value in vars(module).values() if isinstance(value, Metric)}
    own = [metric for key, metric in defined.items() if key not in earlier]
    if not own:
        raise UsageError(f"{module.__file__} defines no metric; define an assay.analysis.metrics.Metric in it")
    for metric in own:
        if metric.name in found:
            raise UsageError(f"{module.__file__} defines the metric {metric.name!r}, which exists; choose another name")
        found[metric.name] = metric


_FAULTS = (AttributeError, NameError, TypeError)


def try_metrics(metrics: dict[str, Metric], config: ResolvedRun) -> None:
    """Call the functions of metrics on the record of a trial of a configuration.

    Raises `UsageError` with the line of the first that fails or returns no number.
    """
    run, block = _filled(RunResult, config=config), _filled(Block)
    for metric in metrics.values():
        for act, given in ((metric.of, run), (metric.of_block, block), (metric.per_step, config)):
            if act is not None:
                _try(metric, act, given)


def _try(metric: Metric, act: Any, given: Any) -> None:
    try:
        found = act(given)
    except _FAULTS as error:
        where = own_line(error)
        if where is not None:
            raise UsageError(
                f"{where}: the metric {metric.name!r} fails on any run: {type(error).__name__}: {first_line(error)}"
            ) from error
        return
    except Exception:  # it may need what the trial lacks
        return
    if found is not None and not (isinstance(found, int | float) and math.isfinite(found)):
        raise UsageError(f"the metric {metric.name!r} returns {found!r:.60}; return a number, or None if there is none")


def _filled(kind: type[BaseModel], **given: Any) -> Any:
    """Return a record with a value in every field."""
    values = {name: _value(field.annotation) for name, field in kind.model_fields.items() if name not in given}
    return kind.model_construct(**values, **given)


def _value(annotation: Any) -> Any:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return _value(next(one for one in arguments if one is not type(None)))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return _filled(annotation)
    if annotation is bool:
        return False
    if annotation in (int, float, str):
        return annotation(1)
    if origin is tuple:
        return tuple(_value(one) for one in arguments if one is not Ellipsis)
    if origin is not None and arguments and isinstance(arguments[0], str):
        return arguments[0]  # a literal
    return {} if origin is not None else None
