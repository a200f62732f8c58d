"""Measurements of each optimization by device, which its card shows next to the predictions.

An entry is one optimization on one kind of device, at its defaults, against a baseline that it took turns with. If it
could not run there, the entry has the reason. `catalogue.json` in this folder ships with the package. Each entry names
its device, version of torch and date, because a figure holds nowhere else. `benchmarks/catalogue.py` writes it.
"""

from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Self

from pydantic import Field, ValidationError

from assay.analysis.comparison import Comparison
from assay.analysis.effects import Verdict
from assay.analysis.metrics.standard import STEP_SECONDS, TENSORS_PEAK_BYTES, TOKENS_PER_SECOND, VAL_LOSS
from assay.analysis.row import Row
from assay.config.base import Frozen
from assay.config.loading import read_bytes
from assay.errors import UsageError
from assay.files import write_file
from assay.hardware import Machine
from assay.records.run import Environment
from assay.records.status import Status

SHOWN = (TENSORS_PEAK_BYTES, STEP_SECONDS, TOKENS_PER_SECOND, VAL_LOSS)
"""Metrics whose change an entry contains."""


class Change(Frozen):
    """Change of one metric against the baseline, as a fraction, with its verdict."""

    change: float
    interval: tuple[float, float] | None
    predicted: float | None
    verdict: Verdict


class CatalogueEntry(Frozen):
    """Measurements of one optimization on one device."""

    optimization: str
    treatment: str
    """Stack that was turned on: the optimization, and the techniques that it requires."""
    configuration: str
    """Preset, and its overrides, which are the same for baseline and treatment."""
    device: str
    torch: str
    date: str
    """Date in UTC, ISO 8601."""
    status: Status
    reason: str | None = None
    proven: bool | None = None
    """None if nothing ran that could prove it."""
    evidence: str = ""
    tensors_peak_bytes: int | None = None
    predicted_peak_bytes: int | None = None
    saved_bytes: int | None = None
    """Bytes saved for backward on one device, from the trace."""
    predicted_saved_bytes: int | None = None
    changes: Mapping[str, Change] = Field(default_factory=dict)
    processes: int | None = None
    """Number of processes of the row; None if only blocks of one process were counted."""
    flags: tuple[str, ...] = ()


class Catalogue(Frozen):
    """All entries, in the order in which they were written."""

    entries: tuple[CatalogueEntry, ...] = ()

    def of(self, optimization: str) -> tuple[CatalogueEntry, ...]:
        """Return the entries of one optimization, one for each device."""
        return tuple(one for one in self.entries if one.optimization == optimization)

    def by_device(self) -> dict[str, dict[str, CatalogueEntry]]:
        """Return the entries by device, then by optimization."""
        found: dict[str, dict[str, CatalogueEntry]] = {}
        for one in self.entries:
            found.setdefault(one.device, {})[one.optimization] = one
        return found

    def renewed(self, entries: Iterable[CatalogueEntry]) -> Self:
        """Return the catalogue with these entries in place of earlier ones of the same optimization and device."""
        known = {(one.optimization, one.device): one for one in (*self.entries, *entries)}
        return type(self)(entries=tuple(known.values()))

    def write(self, path: Path) -> None:
        """Write the file, whole or not at all. Raises `StorageError`."""
        write_file(path, self.model_dump_json(indent=1).encode() + b"\n")


def shipped_path() -> Path:
    """Path of the file that ships with the package."""
    return Path(str(resources.files("assay.analysis") / "catalogue.json"))


_LONGEST_BYTES = 1 << 24


def read(path: Path) -> Catalogue:
    """Return the catalogue in a file. Raises `UsageError` if it is missing or cannot be read."""
    try:
        raw = read_bytes(path, _LONGEST_BYTES)
        if raw is None:
            raise UsageError(f"{path} is longer than {_LONGEST_BYTES} bytes, so it is no measured catalogue")
        return Catalogue.model_validate_json(raw)
    except (OSError, ValidationError) as error:
        first = str(error).splitlines()[0]
        raise UsageError(
            f"{path} is not a measured catalogue ({first}); write one with benchmarks/catalogue.py"
        ) from None


def device_of(machine: Environment | Machine) -> str:
    """Name of the accelerator, or of the processor with its number of cores."""
    if isinstance(machine, Machine):
        accelerator = next((one.name for one in machine.accelerators), None)
    else:
        accelerator = machine.accelerator
    return accelerator or f"{machine.processor}, {machine.cores} cores"


def is_processor(device: str) -> bool:
    """True if the name of an entry's device is that of a processor with its cores."""
    return device.endswith(" cores")


def entry_of(comparison: Comparison, optimization: str, treatment: str, configuration: str) -> CatalogueEntry:
    """Return the entry of one treatment of a comparison. Raises `ValueError` if no baseline ran."""
    if comparison.environment is None:
        raise ValueError("no baseline ran, so the machine of the measurement is not known")
    row = next(one for one in comparison.rows if one.treatment == treatment)
    proof = next((one for one in row.evidence if one.optimization == optimization), None)
    # With several ranks, the measured and the predicted figure may belong to different ranks.
    alone = row.finished and not row.ranks
    saved = comparison.record.of(treatment)[0].result.memory.saved_bytes if alone else {}
    peak = row.metrics.get(TENSORS_PEAK_BYTES.name)
    return CatalogueEntry(
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
        for name in (metric.name for metric in SHOWN)
        if name in row.effects
    }
