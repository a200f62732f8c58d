"""The child of a trial: ``python -m assay.worker.programs.trial DATA_FOLDER``, with a run on standard input.

It builds the run's step, trains it once under the tracer, and asks each optimization for its proof. A fault of the
extension is the last line of standard error, with exit code 2. Whatever else goes wrong is left to the run itself.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from assay.config.extensions import own_line
from assay.config.run import ResolvedRun
from assay.data import open_prepared
from assay.errors import UsageError, first_line
from assay.optimizations import optimizations_of
from assay.parallel.process_rank import ALONE
from assay.records.evidence import Evidence
from assay.records.status import Status
from assay.training.loop import train_until_updated
from assay.worker.build import build_step, device_of, settle_torch
from assay.worker.programs.anatomy import proofs


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the run; returns the exit code."""
    parser = argparse.ArgumentParser(prog="assay.worker.programs.trial")
    parser.add_argument("data", type=Path)
    options = parser.parse_args(arguments)
    run = ResolvedRun.model_validate_json(sys.stdin.read())
    try:
        _tried(run, options.data)
    except (UsageError, MemoryError, torch.OutOfMemoryError):
        return 0  # the run itself says so
    except Exception as error:
        where = own_line(error)
        at = f"{where}: " if where is not None else ""
        print(f"{at}{type(error).__name__}: {first_line(error)}", file=sys.stderr)
        return Status.UNAVAILABLE.exit_code
    return 0


def _tried(run: ResolvedRun, data: Path) -> None:
    """Train one step, and check that each proof is one."""
    device = device_of(run)
    settle_torch(run, device)
    torch.manual_seed(run.seed)
    stack = optimizations_of(run)
    step = build_step(run, open_prepared(data), device, stack, ALONE, fresh=True)
    if step.program.precision.loss_scale.skips:
        train_until_updated(step, 0)
    for one, evidence in zip(stack, proofs(step, run, stack), strict=True):
        if not isinstance(evidence, Evidence):
            raise TypeError(f"{type(one).__name__}.verify returns {evidence!r:.60}; return self.evidence(…)")


if __name__ == "__main__":
    sys.exit(main())
