"""Runs one treatment by the real command line, and reads from its folder what a fault may change."""

import hashlib
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.config.extensions import VARIABLE
from assay.config.home import Home
from mutants.mutant import MARKS, Mutant
from mutants.planting import planted

_RUN = re.compile(r"\d{8}-\d{6}-[0-9a-f]{6}-[0-9a-f]{4}")
_TIMEOUT_SECONDS = 900
_COMPARED = ("--seeds", "3", "--processes", "1", "--json")


@dataclass(frozen=True)
class Place:
    """A folder for homes and extensions, and the verb that runs mutants: `train` or `compare`."""

    folder: Path
    verb: str


@dataclass
class Outcome:
    """The end of one command, and the figures of its run."""

    code: int
    status: str = ""
    reason: str = ""
    unproven: bool = False
    """Whether the answer says that the run is not proven."""
    cautions: list[str] = field(default_factory=list)
    marks: int = 0
    """Number of steps in which the fault acted."""
    figures: dict[str, Any] = field(default_factory=dict)


def ran(mutant: Mutant, place: Place, *, control: bool = False) -> Outcome:
    """Run a mutant, or its control, and return the outcome."""
    slug = re.sub(r"\W+", "-", mutant.name) + ("-control" if control else "")
    folder = place.folder / slug
    marks = folder / "marks"
    folder.mkdir(exist_ok=True)
    treatment = mutant.technique if control else planted(mutant, folder)
    model = (mutant.control or mutant.model) if control else mutant.model
    command = [sys.executable, "-m", "assay", place.verb, model, *mutant.settings, f"training.steps={mutant.of}"]
    command += ["--with", treatment, *(_COMPARED if place.verb == "compare" else ())]
    named = {"ASSAY_HOME": str(place.folder / "home"), VARIABLE: str(folder), MARKS: str(marks)}
    done = subprocess.run(
        command, env={**os.environ, **named}, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS
    )
    outcome = _compared(done) if place.verb == "compare" else _trained(done, place.folder / "home")
    outcome.marks = len({int(step) for step in marks.read_text().split()}) if marks.exists() else 0
    return outcome


def _trained(done: "subprocess.CompletedProcess[str]", home: Path) -> Outcome:
    said = done.stdout + done.stderr
    answer = [one for one in done.stdout.splitlines() if one.startswith("result")]
    found = _RUN.search(said)
    outcome = Outcome(done.returncode, unproven=any("not proven" in one for one in answer))
    if found is None:
        return Outcome(done.returncode, "no run", _last_line(said))
    folder = Home(home).runs / found[0]
    result = folder / "result.json"
    if not result.exists():
        return Outcome(done.returncode, "no result", _last_line(said))
    record = json.loads(result.read_bytes())
    outcome.status, outcome.reason = record["status"], record["reason"] or ""
    outcome.figures = _figures(record, folder)
    return outcome


def _figures(record: dict[str, Any], folder: Path) -> dict[str, Any]:
    events = [json.loads(one) for one in (folder / "events.jsonl").read_text().splitlines()]
    steps = [one for one in events if one["event"] == "step"]
    evaluations = [one.get("loss") for one in events if one["event"].startswith("eval")]
    weights = sorted(folder.glob("checkpoints/*/model.safetensors"))
    memory = record["memory"] or {}
    return {
        "losses": [one["loss"] for one in steps],
        "gradient norms": [one["log_gradient_norm"] for one in steps],
        "tokens": [one["tokens"] for one in steps],
        "validation losses": [*evaluations, record["val_loss"]],
        "validation targets": record["val_targets"],
        "weights": hashlib.sha256(weights[-1].read_bytes()).hexdigest()[:16] if weights else None,
        "peak of tensors": memory.get("tensors_peak_bytes"),
        "peak of the heap": memory.get("heap_peak_bytes"),
        "allocations": memory.get("allocations"),
        "peak of the process": memory.get("process_peak_bytes"),
        "step time": (record["step_seconds"] or {}).get("median"),
        "data wait": record["data_wait_share"],
    }


def _compared(done: "subprocess.CompletedProcess[str]") -> Outcome:
    try:
        found = json.loads(done.stdout)
        (row,) = found["rows"]
    except (ValueError, KeyError):
        return Outcome(done.returncode, "no comparison", _last_line(done.stdout + done.stderr))
    figures = {name: value for name, value in row["metrics"].items() if value is not None}
    name = row["treatment"]
    # A busy machine gives cautions too, so only those of the row count, and those that name it.
    cautions = [str(one) for one in row["flags"]] + [one for one in found["caveats"] if name in one]
    cautions = [one.replace(name, "the row") for one in cautions]
    return Outcome(done.returncode, row["status"], row["reason"] or "", cautions=cautions, figures=figures)


def _last_line(said: str) -> str:
    return next((one for one in reversed(said.splitlines()) if one.strip()), "")
