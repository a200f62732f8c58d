"""Traces of the steps whose peaks were measured on an H200, on fake tensors. It runs with any build of torch.

    python benchmarks/trace_steps.py ROWS.jsonl [FOLDER]...

Each row of the file is one training step, which is traced in a forked process, so that no row sees what a model of
another has cached. For each, one line of JSON is printed. The folders are those of `absent_steps.py`.
"""

import json
import sys
from pathlib import Path
from typing import Any

from assay.config import Home
from assay.fake import hooks

LOADED = hooks.load(hooks.hooks_library(Home().cache / "fake", lambda text: print(text, file=sys.stderr)))
"""The hooks of CUDA, which torch must find when it is imported."""

import torch  # noqa: E402

import absent_steps  # noqa: E402
from assay.absent.gpus import absent_device  # noqa: E402
from assay.errors import UsageError  # noqa: E402
from assay.fake.peak import GpuPeak  # noqa: E402

DEVICE = "h200"


def traced(row: dict[str, Any]) -> GpuPeak:
    """Trace the step of a row."""
    from assay.fake.traced_step import run_peak, step_peak

    if "preset" in row or "run" in row:
        return run_peak(absent_steps.run_of(row), DEVICE)
    make = absent_steps.nanogpts if "nanogpt" in row else absent_steps.others

    def made() -> Any:
        step = make(row)
        return lambda: step(0)

    return step_peak(made, DEVICE)


def found(row: dict[str, Any]) -> dict[str, Any]:
    """The peak of a row, or why there is none."""
    torch.set_num_threads(1)
    try:
        peak = traced(row)
        return {"requested_peak": peak.requested_peak_bytes, "tensors_peak": peak.peak_bytes, "instant": peak.instant}
    except ModuleNotFoundError as error:
        return {"skipped": f"needs {error.name}"}
    except UsageError as error:
        return {"refused": str(error)}
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {str(error).splitlines()[0]}"}


if __name__ == "__main__":
    hooks.begin(LOADED, absent_device(DEVICE))
    # Else each row would import them, which takes longer than most traces.
    import torch._dynamo

    import assay.fake.traced_step  # noqa: F401
    from assay.optimizations import catalogue

    catalogue()
    for line in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines():
        print(json.dumps(absent_steps.in_fork(json.loads(line), found)), flush=True)
