"""A row as plain values, for ``--json`` and for a data frame."""

from math import nan
from statistics import fmean
from typing import Any

from assay.analysis.metrics import metrics
from assay.analysis.noise import Verdict
from assay.analysis.row import Row


def row_json(row: Row) -> dict[str, Any]:
    """Return a row as plain values; `change` and `interval` are fractions.

    `predicted` has the fields of the run's prediction, and under `change` their changes.
    """
    predicted = row.predicted.model_dump(mode="json") if row.predicted else {}
    names = list(metrics())
    return {
        "treatment": row.treatment,
        "status": row.status.value,
        "reason": row.reason,
        "runs": list(row.runs),
        "finished": row.finished,
        "metrics": {name: list(value) if isinstance(value, tuple) else value for name, value in row.metrics.items()},
        "change": {name: row.effects[name].change if name in row.effects else None for name in names},
        "interval": {
            name: list(effect.interval) if (effect := row.effects.get(name)) and effect.interval else None
            for name in names
        },
        "predicted": {**predicted, "change": dict(row.predicted_change)},
        "break_even": row.break_even.model_dump(mode="json") if row.break_even else None,
        "evidence": [item.model_dump(mode="json") for item in row.evidence],
        "values": row.values.model_dump(mode="json") if row.values else None,
        "ranks": [{**one.model_dump(mode="json"), "communication_share": one.communication_share} for one in row.ranks],
        "distinguishable": {name: _distinguishable(row.verdicts.get(name)) for name in names},
        "verdict": {name: verdict.value for name, verdict in row.verdicts.items()},
        "outside": row.outside.model_dump(mode="json") if row.outside else None,
        "flags": list(row.flags),
    }


def _distinguishable(verdict: Verdict | None) -> bool | None:
    """True or false if the comparison can tell; None if it has too few processes or no figure."""
    return None if verdict in (None, Verdict.TOO_FEW, Verdict.UNTOLD) else verdict.distinguishable


def row_columns(row: Row) -> dict[str, Any]:
    """Return a row of a data frame: one value per column, losses as their mean over seeds."""
    flat: dict[str, Any] = {"treatment": row.treatment, "status": row.status.value, "reason": row.reason}
    for name, value in row.metrics.items():
        single = (fmean(value) if value else None) if isinstance(value, tuple) else value
        flat[name] = _number(single)
    for name in metrics():
        effect = row.effects.get(name)
        low, high = effect.interval if effect and effect.interval else (nan, nan)
        flat |= {f"{name}_change": effect.change if effect else nan, f"{name}_low": low, f"{name}_high": high}
        flat[f"{name}_verdict"] = row.verdicts[name].value if name in row.verdicts else None
    for name in (metric.name for metric in metrics().values() if metric.predicted):
        flat[f"predicted_{name}"] = _number(getattr(row.predicted, name) if row.predicted else None)
        flat[f"predicted_{name}_change"] = row.predicted_change.get(name, nan)
    flat["evidence"] = "; ".join(item.observed for item in row.evidence)
    flat["flags"] = "; ".join(row.flags)
    return flat


def _number(value: float | None) -> float:
    """Return a figure, or NaN if it is missing, so that a column of numbers stays one."""
    return nan if value is None else float(value)
