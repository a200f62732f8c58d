"""What was measured of each optimization, where: the figures that stand on its card beside the predicted ones.

An entry is one optimization on one kind of device, at its defaults, against a baseline that it took turns with, or the
reason why it could not be had there. `catalogue.json` in this folder is what ships with the package; each entry says
its device, version of torch and date, for a figure holds nowhere else. `benchmarks/catalogue.py` writes it.
"""

from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Self

from pydantic import Field, ValidationError

from assay.analysis.comparison import Comparison
from assay.analysis.noise import Verdict
from assay.analysis.row import Row
from assay.config.base import Frozen
from assay.data.atomic import write_file
from assay.errors import UsageError
from assay.hardware import Machine
from assay.runs.record import Environment, Status

SHOWN = ("tensors_peak_bytes", "step_seconds", "tokens_per_second", "val_loss")
"""Metrics whose change an entry holds."""


class Change(Frozen):
    """Of one metric against the baseline, as a fraction, with what can be said of it."""

    change: float
    interval: tuple[float, float] | None
    predicted: float | None
    verdict: Verdict


class Entry(Frozen):
    """One optimization on one device."""

    optimization: str
    treatment: str
    """What was turned on: it, and what it cannot be without."""
    configuration: str
    """The preset, and what had to be other than in it for baseline and treatment alike."""
    device: str
    torch: str
    date: str
    """UTC, ISO 8601."""
    status: Status
    reason: str | None = None
    proven: bool | None = None
    """None where nothing ran that could prove it."""
    evidence: str = ""
    tensors_peak_bytes: int | None = None
    predicted_peak_bytes: int | None = None
    saved_bytes: int | None = None
    """Kept for backward on one device, from the trace."""
    predicted_saved_bytes: int | None = None
    changes: Mapping[str, Change] = Field(default_factory=dict)
    processes: int | None = None
    """Processes of its row; None where only blocks of one were counted."""
    flags: tuple[str, ...] = ()


class Catalogue(Frozen):
    """Every entry there is, in the order in which they were written."""

    entries: tuple[Entry, ...] = ()

    def of(self, optimization: str) -> tuple[Entry, ...]:
        """Those of one optimization, one for each device."""
        return tuple(one for one in self.entries if one.optimization == optimization)

    def by_device(self) -> dict[str, dict[str, Entry]]:
        """By device, then by optimization."""
        found: dict[str, dict[str, Entry]] = {}
        for one in self.entries:
            found.setdefault(one.device, {})[one.optimization] = one
        return found

    def renewed(self, entries: Iterable[Entry]) -> Self:
        """With these in place of earlier ones of the same optimization and device."""
        known = {(one.optimization, one.device): one for one in (*self.entries, *entries)}
        return type(self)(entries=tuple(known.values()))

    def write(self, path: Path) -> None:
        """Whole or not at all. Raises `StorageError`."""
        write_file(path, self.model_dump_json(indent=1).encode() + b"\n")


def shipped() -> Path:
    """The file that comes with the package."""
    return Path(str(resources.files("assay.analysis") / "catalogue.json"))


def read(path: Path) -> Catalogue:
    """The catalogue in a file. Raises `UsageError` where there is none or it cannot be read."""
    try:
        return Catalogue.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        first = str(error).splitlines()[0]
        raise UsageError(f"{path} is no measured catalogue ({first}); benchmarks/catalogue.py writes one") from None


def device_of(machine: Environment | Machine) -> str:
    """The accelerator's name, or the processor's with its cores."""
    if isinstance(machine, Machine):
        accelerator = next((one.name for one in machine.accelerators), None)
    else:
        accelerator = machine.accelerator
    return accelerator or f"{machine.processor}, {machine.cores} cores"


def measured(comparison: Comparison, optimization: str, treatment: str, configuration: str) -> Entry:
    """The entry that a comparison gives of one of its treatments. Raises `ValueError` where no baseline ran."""
    if comparison.environment is None:
        raise ValueError("no baseline ran, so where this was measured is not known")
    row = next(one for one in comparison.rows if one.treatment == treatment)
    proof = next((one for one in row.evidence if one.optimization == optimization), None)
    # Over ranks the measured figure and the predicted one need not be of the same rank.
    alone = row.finished and not row.ranks
    saved = comparison.record.of(treatment)[0].result.memory.saved_bytes if alone else {}
    peak = row.metrics.get("tensors_peak_bytes")
    return Entry(
        optimization=optimization,
        treatment=treatment,
        configuration=configuration,
        device=device_of(comparison.environment),
        torch=comparison.environment.torch,
        date=comparison.record.created[:10],
        status=row.status,
        reason=row.reason,
        proven=None if proof is None or row.status is Status.WRONG_VALUES else proof.verdict,
        evidence="" if proof is None else proof.observed,
        tensors_peak_bytes=peak if isinstance(peak, int) else None,
        predicted_peak_bytes=row.predicted.tensors_peak_bytes if row.predicted else None,
        saved_bytes=sum(saved.values()) if saved else None,
        predicted_saved_bytes=row.predicted.saved_bytes if row.predicted and saved else None,
        changes=_changes(row),
        processes=row.finished,
        flags=row.flags,
    )


def _changes(row: Row) -> dict[str, Change]:
    return {
        name: Change(
            change=row.effects[name].change,
            interval=row.effects[name].interval,
            predicted=row.predicted_change.get(name),
            verdict=row.verdicts[name],
        )
        for name in SHOWN
        if name in row.effects
    }
