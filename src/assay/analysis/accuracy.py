"""Errors of predicted memory and time in recorded runs: medians, 95th percentiles and the worst run of each group.

The record of a run has the prediction that was made before it started, and the measurement. An error is predicted over
measured, minus one. Runs whose technique had no effect, or that computed wrong values, are left out: they are not the
runs that were predicted. Step times of a run beside which other programs worked are left out as well. Quantiles
interpolate linearly between the errors' sizes.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from assay.records.run import Environment, RunResult
from assay.records.status import Status

Quantity = Literal["memory", "traced", "time", "roofline"]
QUANTITIES: tuple[Quantity, ...] = ("memory", "traced", "time", "roofline")
"""Peak of tensors in bytes by the ledger, and by a trace of a model of the user's own. Then follow the median seconds
of a steady step, predicted from timed steps of few blocks, and from the machine's rates."""

_OTHERS = {Status.NO_EFFECT, Status.WRONG_VALUES, Status.DAMAGED}
NO_TECHNIQUE = "none"
"""Group of the runs without a technique."""
_HIGH = 0.95


@dataclass(frozen=True)
class PredictedFigure:
    """One predicted figure of a run and the measured one."""

    run: str
    device: str
    techniques: tuple[str, ...]
    quantity: Quantity
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """Relative error: 0.1 for a prediction that is 10 % too large."""
        return self.predicted / self.measured - 1


@dataclass(frozen=True)
class Errors:
    """Errors of one quantity in a group of runs, as fractions."""

    quantity: Quantity
    group: str
    runs: int
    median: float
    """Median size of an error."""
    percentile_95: float
    """Size that 95 % of the errors do not exceed."""
    worst: float
    """The largest error, with its sign."""
    worst_run: str

    @classmethod
    def of(cls, quantity: Quantity, group: str, predictions: Sequence[PredictedFigure]) -> "Errors":
        """Summarize the errors of one group, which has at least one prediction."""
        sizes = sorted(abs(one.error) for one in predictions)
        worst = max(predictions, key=lambda one: abs(one.error))
        return cls(
            quantity=quantity,
            group=group,
            runs=len(predictions),
            median=quantile(sizes, 0.5),
            percentile_95=quantile(sizes, _HIGH),
            worst=worst.error,
            worst_run=worst.run,
        )


@dataclass(frozen=True)
class Accuracy:
    """Errors of all predictions in a home."""

    predictions: tuple[PredictedFigure, ...]
    runs: int
    """Number of runs with at least one predicted and measured figure."""
    others: int = 0
    """Number of runs without one."""
    unreadable: int = 0
    """Number of runs whose record cannot be read."""

    def overall(self) -> tuple[Errors, ...]:
        """Errors of all runs together, by quantity."""
        return self._grouped(lambda one: ("all runs",))

    def by_device(self) -> tuple[Errors, ...]:
        """Errors by quantity and device, most runs first."""
        return self._grouped(lambda one: (one.device,))

    def by_technique(self) -> tuple[Errors, ...]:
        """Errors by quantity and technique, most runs first; a run counts for each technique of its stack."""
        return self._grouped(lambda one: one.techniques or (NO_TECHNIQUE,))

    def to_dict(self) -> dict[str, Any]:
        """All figures as plain values for JSON; errors are fractions."""
        return {
            "runs": self.runs,
            "runs_without": self.others,
            "unreadable": self.unreadable,
            "overall": list(map(asdict, self.overall())),
            "by_device": list(map(asdict, self.by_device())),
            "by_technique": list(map(asdict, self.by_technique())),
        }

    def _grouped(self, groups_of: Callable[[PredictedFigure], Iterable[str]]) -> tuple[Errors, ...]:
        found: dict[tuple[Quantity, str], list[PredictedFigure]] = {}
        for one in self.predictions:
            for group in dict.fromkeys(groups_of(one)):
                found.setdefault((one.quantity, group), []).append(one)
        every = [Errors.of(*key, predictions) for key, predictions in found.items()]
        return tuple(sorted(every, key=lambda one: (QUANTITIES.index(one.quantity), -one.runs, one.group)))


def accuracy(results: Iterable[RunResult], unreadable: int = 0) -> Accuracy:
    """Collect the predictions of recorded runs with their measurements."""
    predictions: list[PredictedFigure] = []
    runs = others = 0
    for result in results:
        found = _predictions(result)
        predictions.extend(found)
        runs, others = runs + bool(found), others + (not found)
    return Accuracy(tuple(predictions), runs, others, unreadable)


def quantile(ordered: Sequence[float], share: float) -> float:
    """Quantile of sorted values, interpolated linearly."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def device_of(environment: Environment) -> str:
    """Name of the device that computed, with threads on a CPU, and the version of torch."""
    if environment.device.startswith("cuda") and environment.accelerator:
        return f"{environment.accelerator}, torch {environment.torch}"
    threads = f"{environment.threads} thread{'s' if environment.threads != 1 else ''}"
    return f"{environment.processor}, {threads}, torch {environment.torch}"


def _predictions(result: RunResult) -> list[PredictedFigure]:
    """The figures of a run that were both predicted and measured."""
    predicted = result.predicted
    if predicted is None or result.provenance.environment is None or result.status in _OTHERS:
        return []
    device = device_of(result.provenance.environment)
    techniques = tuple(spec.name for spec in result.config.optimizations)
    steps = result.speed.step_seconds
    seconds = None if steps is None or _disturbed(result) else steps.median
    timed = None if predicted.step_seconds_margin is None else predicted.step_seconds
    pairs: dict[Quantity, tuple[float | None, float | None]] = {
        "traced" if predicted.traced else "memory": (predicted.tensors_peak_bytes, result.memory.tensors_peak_bytes),
        "time": (timed, seconds),
        "roofline": (predicted.work_seconds, seconds),
    }
    return [
        PredictedFigure(result.run, device, techniques, quantity, expected, found)
        for quantity, (expected, found) in pairs.items()
        if expected and found
    ]


def _disturbed(result: RunResult) -> bool:
    """True if more than half of the timed blocks were disturbed by other programs, such as cells beside them."""
    return sum(block.disturbed for block in result.speed.blocks) > len(result.speed.blocks) / 2
