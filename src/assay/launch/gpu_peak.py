"""The peak of a step on a GPU that is not there: a process of its own traces it, or torch's CUDA build runs it.

The parent imports neither torch nor the user's code.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.absent.gpus import absent_device, description
from assay.absent.launch import library_environment, library_for
from assay.absent.toolchain import check_no_gpu, check_settings, check_tools, environment
from assay.config import Home
from assay.config.run import ResolvedRun
from assay.errors import UsageError, short_text
from assay.fake import hooks
from assay.fake.peak import GpuPeak
from assay.launch.child import check_alive
from assay.records.status import Status

PYTHON = "ASSAY_ABSENT_PYTHON"
"""Variable that names a Python with a CUDA build of torch, and with the packages that assay requires."""
_PROGRAM = ("-P", "-m", "assay.worker.programs.gpu_peak")
_MISSING = "ModuleNotFoundError: No module named "


def trace_on_fake_tensors(run: ResolvedRun, device: str, tell: Callable[[str], None], **asked: Any) -> GpuPeak:
    """Trace the step of a run, or of a user's function, on fake tensors. Raises `UsageError`.

    `asked` are `batch`, the rows for a function that takes them, or None; and `largest`, True for the largest batch.
    """
    library = hooks.hooks_library(Home().cache / "fake", tell)
    task = {"library": str(library), "ran": False} | _task(run, device, asked)
    return _answer(sys.executable, dict(os.environ), task)


def run_on_absent_gpu(
    run: ResolvedRun, device: str, tell: Callable[[str], None], seconds: float | None = None, **asked: Any
) -> GpuPeak:
    """Run the step on an absent GPU, with a Python that has a CUDA build of torch.

    Raises `UsageError`, also if it takes longer than so many seconds.
    """
    python = cuda_python()
    library = library_for([python], tell)
    variables = dict(os.environ) | library_environment(library) | description(absent_device(device), 1)
    # One process counts its devices before it is forked, which would otherwise start CUDA.
    variables["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    # Beside assay there are folders that the user named, in which the step's own packages may be.
    variables["PYTHONPATH"] = os.pathsep.join(
        [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    return _answer(python, variables, {"library": None, "ran": True} | _task(run, device, asked), seconds)


def refusal() -> str | None:
    """Return why no step can run on an absent GPU here; None if it can."""
    try:
        check_no_gpu()
        check_settings()
        check_tools(environment([cuda_python()]))
    except UsageError as error:
        return str(error)
    return None


def cuda_python() -> str:
    """Return the Python of the variable, or this one if its torch is a CUDA build. Raises `UsageError` without one."""
    named = os.environ.get(PYTHON)
    if named:
        return named
    if "+cpu" in hooks.installed_torch().version:
        raise UsageError(
            f"an absent GPU needs a CUDA build of torch, and that of assay is a CPU build; name a Python that has one "
            f"in the variable {PYTHON}, or trace the step with --trace"
        )
    return sys.executable


def _task(run: ResolvedRun, device: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    return {"run": run.model_dump(mode="json"), "device": device, **asked}


def _answer(python: str, variables: dict[str, str], task: Mapping[str, Any], seconds: float | None = None) -> GpuPeak:
    """Find the peak in the folder of the user's function, if there is one, from which it may read files."""
    own = task["run"]["model"]["own_folder"]
    text = answer_of([python, *_PROGRAM], variables, task, seconds, None if own is None else Path(own))
    return GpuPeak.model_validate_json(text)


def answer_of(
    command: Sequence[str],
    variables: Mapping[str, str],
    task: Mapping[str, Any],
    seconds: float | None = None,
    folder: Path | None = None,
) -> str:
    """Run a program that follows a step, in a folder, and return the line of its answer.

    Raises `UsageError` for a fault of the user's code and after so many seconds, `RuntimeError` if it ends without an
    answer.
    """
    given = f"{json.dumps(task)}\n"
    try:
        done = subprocess.run(
            command, input=given, env=variables, capture_output=True, text=True, timeout=seconds, cwd=folder
        )
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"the step took more than {error.timeout:g} s there") from error
    except OSError as error:
        raise UsageError(f"{short_text(command[0])} could not be started: {error.strerror}") from error
    last = last_message(done.returncode, done.stderr)
    if last.startswith(_MISSING):
        raise UsageError(
            f"{command[0]} has no package {last.removeprefix(_MISSING)}, which assay needs there; install assay in its "
            "environment"
        )
    if done.returncode or not done.stdout.strip():
        raise RuntimeError(f"the process of the step ended with exit code {done.returncode}: {last}")
    return done.stdout.splitlines()[-1]


def last_message(code: int, messages: str) -> str:
    """Return the last line that the process of a step printed before it ended with an exit code.

    Raises `UsageError` with that line if it is a fault of the user's code, and `ProcessKilled` if a signal ended it.
    """
    check_alive(code, "the process of the step")
    last = (messages.strip().splitlines() or ["it printed no message"])[-1]
    if code == Status.UNAVAILABLE.exit_code:
        raise UsageError(last)
    return last
