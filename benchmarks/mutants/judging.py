"""Judges an outcome: was the fault caught, did it act, what did it change, and does its control pass?"""

import json
import re
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from assay.files import write_file
from mutants.mutant import Mutant
from mutants.running import Outcome, Place, ran

_CLOSE = {
    "peak of the process": 0.02,
    "peak of the heap": 0.02,
    "allocations": 0.02,
    "step time": 0.1,
    "data wait": 0.5,
}
"""Figures that differ from run to run, and the relative difference that counts."""
_TIMES = ("step time", "data wait", "step_seconds", "tokens_per_second")


@dataclass(frozen=True)
class Judgement:
    """The verdict on one mutant, with its grounds."""

    name: str
    kind: str
    verb: str
    verdict: str
    """One of `caught`, `SILENT`, `crashed` and `broken`; see `verdict_of`."""
    status: str
    reason: str
    acted: int
    """Number of steps in which the fault left its mark; 0 for a loss that is itself at fault."""
    differs: str
    """Figures that differ from the control's."""
    control: str
    commit: str


class Results:
    """Judgements so far, in a file unless there is none, and the controls of this call."""

    def __init__(self, file: Path | None) -> None:
        self._file, self._lock = file, threading.Lock()
        found = json.loads(file.read_bytes()) if file is not None and file.exists() else {}
        self.judgements = {key: Judgement(**one) for key, one in found.get("mutants", {}).items()}
        self._controls: dict[str, Outcome] = {}
        self.commit = _commit()

    def has(self, verb: str, name: str) -> bool:
        """Whether a mutant has a judgement."""
        return f"{verb}/{name}" in self.judgements

    def add(self, one: Judgement) -> None:
        """Keep a judgement."""
        with self._lock:
            self.judgements[f"{one.verb}/{one.name}"] = one
            self._write()

    def control(self, mutant: Mutant, place: Place) -> Outcome:
        """Outcome of a mutant's control, which mutants of one technique and configuration share."""
        model = Path(mutant.control or mutant.model).name
        key = " ".join([place.verb, model, mutant.technique, str(mutant.of), *mutant.settings])
        with self._lock:
            if key not in self._controls:
                self._controls[key] = ran(mutant, place, control=True)
            return self._controls[key]

    def _write(self) -> None:
        if self._file is None:
            return
        mutants = {key: asdict(one) for key, one in self.judgements.items()}
        write_file(self._file, json.dumps({"mutants": mutants}).encode() + b"\n")


def judged(kind: str, mutant: Mutant, place: Place, results: Results) -> Judgement:
    """Run a mutant and its control, and keep the judgement."""
    control, found = results.control(mutant, place), ran(mutant, place)
    new = _new(found.cautions, control.cautions)
    verdict = verdict_of(found, control, cautioned=bool(new), marks=mutant.fault is not None)
    reason = found.reason or (new[0] if new else "")
    differs = "" if mutant.control else ", ".join(_differing(found.figures, control.figures))
    one = Judgement(
        mutant.name,
        kind,
        place.verb,
        verdict,
        found.status,
        reason,
        found.marks,
        differs,
        control.status,
        results.commit,
    )
    results.add(one)
    return one


def verdict_of(found: Outcome, control: Outcome, *, cautioned: bool, marks: bool) -> str:
    """Return the verdict on a mutant whose fault leaves `marks`.

    It is caught if the run ends with exit code 3, says that it is not proven, or has a caution of its own. It crashed
    if the run failed with an error of the program's. It is broken if it cannot be judged: the command was refused, the
    control did not pass, or the fault never acted.
    """
    if control.code != 0 or found.code == 2 or (marks and not found.marks):
        return "broken"
    if found.code == 3 or found.unproven or cautioned:
        return "caught"
    return "SILENT" if found.code == 0 else "crashed"


def line(one: Judgement) -> str:
    """The judgement in one line."""
    what = f"{one.verdict} ({one.status}{': ' if one.reason else ''}{one.reason})"
    control = "" if one.control == "done" else f"; its control ended as {one.control}"
    return f"{one.kind}: {one.name}: {what}; acted in {one.acted} steps; differs in {one.differs or 'nothing'}{control}"


def _new(cautions: Sequence[str], known: Sequence[str]) -> list[str]:
    """Cautions that the control has not, whatever their numbers are."""
    plain = {re.sub(r"[\d.]+", "#", one) for one in known}
    return [one for one in cautions if re.sub(r"[\d.]+", "#", one) not in plain]


def _differing(found: dict[str, Any], control: dict[str, Any]) -> list[str]:
    """Name the figures that differ; those of time, which others disturb, only if nothing else does."""
    names = [name for name, value in found.items() if name in control and _differs(name, value, control[name])]
    return [name for name in names if name not in _TIMES] or names


def _differs(name: str, value: Any, other: Any) -> bool:
    if isinstance(value, list) and isinstance(other, list):
        return value[: len(other)] != other[: len(value)]
    if value is None or other is None or name not in _CLOSE:
        return bool(value != other)
    return bool(abs(value - other) > _CLOSE[name] * abs(other))


def _commit() -> str:
    """Return the last commit that changed the package, which is what mutants are judged by."""
    root = Path(__file__).parents[2]
    command = ["git", "log", "-1", "--format=%h", "--", "src"]
    return subprocess.run(command, cwd=root, capture_output=True, text=True).stdout.strip()
