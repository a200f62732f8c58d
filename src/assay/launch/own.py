"""Programs of a user's own, measured in a process of its own: the parent imports neither torch nor the user's code."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.config.run import ResolvedRun
from assay.config.source import names_a_function
from assay.errors import UsageError
from assay.records.own.step import OwnStep
from assay.records.own.traced import TracedPeak
from assay.records.status import Status

_CHILD = (sys.executable, "-P", "-m", "assay.worker.programs.own")


def measured(name: str, folder: Path | str | None, title: str, tokens: int | None, blocks: int) -> OwnStep:
    """Measure the step that the function `name` returns.

    Raises `UsageError` for a fault of the user's code, and `RuntimeError` if the process ends without an answer.
    """
    if not names_a_function(name):
        raise UsageError(f"{name!r} names no function; write module:function or file.py:function")
    where = str(Path.cwd() if folder is None else folder)
    return OwnStep.model_validate_json(
        _answer({"name": name, "folder": where, "title": title, "tokens": tokens, "blocks": blocks})
    )


def traced(run: ResolvedRun) -> TracedPeak:
    """Trace the step of a run on fake tensors. Raises as `measured`."""
    return TracedPeak.model_validate_json(_answer({"run": run.model_dump(mode="json")}))


def _answer(task: Mapping[str, Any]) -> str:
    done = subprocess.run(_CHILD, input=f"{json.dumps(task)}\n", capture_output=True, text=True, check=False)
    lines = done.stderr.strip().splitlines() or ["it printed no message"]
    if done.returncode == Status.UNAVAILABLE.exit_code:
        raise UsageError(lines[-1])
    if done.returncode == 0 and not done.stdout.strip():
        raise UsageError("the program ended its process before it answered; leave out sys.exit and the like")
    if done.returncode != 0:
        raise RuntimeError(f"the process of the program ended with exit code {done.returncode}: {lines[-1]}")
    return done.stdout.strip().splitlines()[-1]
