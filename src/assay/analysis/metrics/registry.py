"""The folder is the registry: every module here that is not part of the frame defines one or more `Metric` objects.

To add metrics, drop a file into the folder, or into the folder `metrics` of `ASSAY_EXTENSIONS`.
"""

import importlib
from functools import cache
from pathlib import Path
from types import ModuleType

from assay.analysis.metrics.base import Metric
from assay.config.extensions import extension_folder, modules
from assay.config.run import ResolvedRun
from assay.errors import UsageError

_FRAME = {"__init__", "base", "registry", "trial"}
_FIRST = ("memory", "time", "loss", "communication", "gradients")
"""Modules whose metrics are the first columns, in this order. Metrics of others follow by name."""


def metrics() -> dict[str, Metric]:
    """Return every metric by name, in the order of columns.

    Raises `UsageError` for a file of the user's that cannot be imported, has no metric, or whose name is taken.
    """
    return dict(_known(extension_folder("metrics")))


def check_own(config: ResolvedRun) -> None:
    """Try the metrics of the user's folder on the record of a trial. Raises `UsageError` for one that fails."""
    from assay.analysis.metrics.trial import try_metrics

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
