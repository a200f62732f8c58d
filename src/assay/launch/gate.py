"""A memory gate: find the figures of steps, compare them with a lock, and decide.

Each step is followed in a process of its own. The parent imports neither torch nor the user's code. The figures are
those of fake tensors, so they are equal on every processor. Those of an absent GPU are there where the environment has
one, and are compared where both sides have them.

A figure that grows beyond a tolerance fails a check. Under another version of torch the user's code may not have
changed at all, so growth fails only a strict check.
"""

import json
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import ValidationError

from assay.absent.gpus import absent_device
from assay.config import Home
from assay.config.extensions import names_a_function
from assay.errors import UsageError, short_text
from assay.fake import hooks
from assay.files import read_file, write_file
from assay.launch.gpu_peak import answer_of
from assay.records.gated import (
    CPU,
    FORMAT,
    LOCK,
    AbsentFigure,
    Figure,
    FigureBlock,
    GatedFigure,
    GateLock,
    LockedStep,
    StepFigures,
)
from assay.records.status import Exit

_PROGRAM = (sys.executable, "-P", "-m", "assay.worker.programs.step_figures")
ABSENT_FIGURES: tuple[AbsentFigure, ...] = get_args(AbsentFigure)
STEP_FIGURES: tuple[Figure, ...] = get_args(Figure)
FIGURES: tuple[GatedFigure, ...] = (*STEP_FIGURES, *ABSENT_FIGURES)
Verdict = Literal["locked", "unchanged", "shrank", "grew", "other torch"]


@dataclass(frozen=True)
class Tolerance:
    """Growth that a check allows of bytes and FLOPs; counts may not grow."""

    fraction: float = 0.0
    nbytes: int = 0
    """Bytes that a figure of memory may grow."""

    def allows(self, figure: GatedFigure, before: int, after: int) -> bool:
        """True if a figure may be so large."""
        if figure in ("synchronizations", "graph_breaks"):
            return after <= before
        return after <= before * (1 + self.fraction) + (self.nbytes if figure != "flops" else 0)


@dataclass(frozen=True)
class BlockChange:
    """A block of a figure before and after; 0 where it does not exist."""

    block: FigureBlock
    before: int
    after: int


@dataclass(frozen=True)
class StepCheck:
    """A step as it is, beside what is locked of it."""

    now: LockedStep
    locked: LockedStep | None
    """None if the step was locked for the first time."""
    tolerance: Tolerance = Tolerance()

    @property
    def title(self) -> str:
        """Name of the step for a reader."""
        return self.now.title

    @property
    def to_lock(self) -> LockedStep:
        """The step as a lock keeps it: without an absent GPU here, figures of an earlier one stay."""
        kept = self.now.absent or (self.locked and self.locked.absent)
        return self.now.model_copy(update={"absent": kept})

    def pair(self, figure: GatedFigure) -> tuple[int, int]:
        """Return a figure before and after; 0 where it does not exist. What has no counterpart is unchanged."""
        sides = [one.figures.get(figure, 0) for one in self._sides(figure) if one is not None]
        return (sides[0], sides[-1]) if sides else (0, 0)

    def other_torch(self, figure: GatedFigure = "peak_bytes") -> bool:
        """True if another version of torch made the figure in the lock."""
        before, after = self._sides(figure)
        return before is not None and after is not None and before.torch != after.torch

    @property
    def grown(self) -> tuple[GatedFigure, ...]:
        """Figures that grew by more than is allowed."""
        return tuple(one for one in FIGURES if not self.tolerance.allows(one, *self.pair(one)))

    @property
    def verdict(self) -> Verdict:
        """Result of the comparison."""
        if self.locked is None:
            return "locked"
        if any(not self.other_torch(one) for one in self.grown):
            return "grew"
        if self.other_torch():
            return "other torch"
        pairs = [self.pair(one) for one in FIGURES if not self.other_torch(one)]
        return "shrank" if any(after < before for before, after in pairs) else "unchanged"

    def _sides(self, figure: GatedFigure) -> tuple[Any, Any]:
        """Return the figures of the lock and of now among which a figure is; None where there are none."""
        part = "absent" if figure in ABSENT_FIGURES else "found"
        return getattr(self.locked, part, None), getattr(self.now, part)

    def changes(self, figure: Figure) -> tuple[BlockChange, ...]:
        """Return the blocks of a figure that differ; those that grew most are first."""
        blocks: list[dict[tuple[str, str, str], FigureBlock]] = [
            {block.key: block for block in one.blocks.get(figure, ())} if one else {} for one in self._sides(figure)
        ]
        there, here = blocks
        found = [
            BlockChange(
                here.get(key) or there[key],
                there[key].size if key in there else 0,
                here[key].size if key in here else 0,
            )
            for key in {**here, **there}
        ]
        return tuple(sorted((one for one in found if one.before != one.after), key=lambda one: one.before - one.after))


@dataclass(frozen=True)
class GateAnswer:
    """Steps beside a lock."""

    lock: Path
    checks: tuple[StepCheck, ...]
    updated: bool = False
    """True if the lock was written."""
    strict: bool = False
    """True if growth under another version of torch fails as well."""

    def fails(self, check: StepCheck) -> bool:
        """True if a step does not hold what is locked of it."""
        return not self.updated and any(self.strict or not check.other_torch(one) for one in check.grown)

    @property
    def exit_code(self) -> Exit:
        """Exit code of a check."""
        return Exit.UNMET if any(map(self.fails, self.checks)) else Exit.DONE


def step_figures(name: str, device: str, folder: Path, tell: Callable[[str], None]) -> StepFigures:
    """Follow the step that a function returns, on the CPU or on a GPU that may be absent. Raises `UsageError`."""
    if not names_a_function(name):
        raise UsageError(f"{short_text(name)} names no function; write file.py:function or module:function")
    library = None
    if device != CPU:
        absent_device(device)
        library = str(hooks.hooks_library(Home().cache / "fake", tell))
    task = {"name": name, "folder": str(folder), "device": device, "library": library}
    return StepFigures.model_validate_json(answer_of(_PROGRAM, os.environ, task, folder=folder))


def lock_path(names: Sequence[str], folder: Path) -> Path:
    """Return the lock of some functions: that in the folder, else one beside a file of theirs, else a new one."""
    files = [folder / one.rpartition(":")[0] for one in names if ".py:" in one]
    found = (place for place in (folder / LOCK, *(one.parent / LOCK for one in files)) if place.exists())
    return next(found, folder / LOCK)


def name_in_lock(name: str, folder: Path, lock: Path) -> str:
    """Return the name of a function as a lock has it: a file is relative to the lock."""
    where, _, function = name.rpartition(":")
    if not where.endswith(".py"):
        return name
    file = os.path.relpath((folder / where).absolute(), lock.absolute().parent)
    return f"{Path(file).as_posix()}:{function}"


def read_lock(path: Path) -> GateLock:
    """Read a lock. Raises `UsageError` if it is none, or of another format."""
    try:
        values = json.loads(read_file(path))
        if values["format"] != FORMAT:
            raise UsageError(
                f"{path} has format {short_text(values['format'])}, and this assay reads {FORMAT}; remove it and "
                "write it anew with assay gate update"
            )
        return GateLock.model_validate(values)
    except FileNotFoundError:
        raise UsageError(
            f"there is no lock {path}; write it with assay gate update FILE.py:FUNCTION, or with pytest "
            "--assay-gate-update where a test gates the step"
        ) from None
    except (ValueError, KeyError, TypeError, ValidationError, OSError) as error:
        raise UsageError(
            f"{path} is no lock that can be read; restore it, or remove it and write it anew with assay gate update"
        ) from error


def write_lock(path: Path, lock: GateLock) -> None:
    """Write a lock with a line for each block, so that a diff of it shows what changed. Raises `StorageError`."""
    values = lock.model_dump(mode="json", exclude_none=True)
    lines: list[dict[str, Any]] = []
    for step in values["steps"]:
        for name, blocks in step["found"]["blocks"].items():
            step["found"]["blocks"][name] = [f"@{len(lines) + place}@" for place in range(len(blocks))]
            lines += blocks
    text = re.sub(
        r'"@(\d+)@"(?=,?$)', lambda found: json.dumps(lines[int(found[1])]), json.dumps(values, indent=1), flags=re.M
    )
    write_file(path, f"{text}\n".encode())
