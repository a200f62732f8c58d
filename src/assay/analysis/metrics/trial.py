"""A trial of a user's metrics, before a comparison spends hours on runs that they could not read.

The record of the trial has a number in every figure. It shows faults of the metric itself: a field that no record
has, a name that is not defined, a result that is no number. A metric may ask for more than the trial has, such as a key
of `extra`; such errors are no faults.
"""

import math
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel

from assay.analysis.metrics.base import Metric
from assay.config.extensions import own_line
from assay.config.run import ResolvedRun
from assay.errors import UsageError, first_line
from assay.records.run import RunResult
from assay.records.timing import Block

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
