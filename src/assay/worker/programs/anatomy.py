"""The child of `assay anatomy`: ``python -m assay.worker.programs.anatomy DATA_FOLDER``, with a run on standard input.

It prints one line of JSON. A fault that the user can correct is the last line of standard error, with exit code 2.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from assay.config.run import ResolvedRun
from assay.data import open_prepared
from assay.errors import UsageError
from assay.instruments.dissection import TAKEN_STEPS, anatomy, memory_snapshot, operators
from assay.instruments.memory.resident_memory import keep_freed_memory
from assay.instruments.step_trace import StepTracer
from assay.optimizations import Optimization, optimizations_of
from assay.parallel.process_rank import ALONE
from assay.records.evidence import Evidence
from assay.records.status import Status
from assay.step.program import Step
from assay.training.loop import train_step, train_until_updated
from assay.worker.build import build_step, device_of, settle_torch


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the anatomy of a step and print it; returns the exit code."""
    parser = argparse.ArgumentParser(prog="assay.worker.programs.anatomy")
    parser.add_argument("data", type=Path)
    parser.add_argument("--operators", action="store_true")
    parser.add_argument("--snapshot", type=Path)
    options = parser.parse_args(arguments)
    run = ResolvedRun.model_validate_json(sys.stdin.read())
    device = device_of(run)
    settle_torch(run, device)
    keep_freed_memory()
    torch.manual_seed(run.seed)
    try:
        stack = optimizations_of(run)
        step = build_step(run, open_prepared(options.data), device, stack, ALONE, fresh=True)
        if step.program.precision.loss_scale.skips:
            train_until_updated(step, 0)
        found = anatomy(step, train_step)
        if options.operators:
            found = found.model_copy(update={"operators": operators(step, train_step, TAKEN_STEPS)})
        if options.snapshot is not None:
            memory_snapshot(step, train_step, TAKEN_STEPS, options.snapshot)
    except UsageError as error:
        print(error, file=sys.stderr)
        return Status.UNAVAILABLE.exit_code
    print(found.model_copy(update={"evidence": proofs(step, run, stack)}).model_dump_json())
    return 0


def proofs(step: Step, run: ResolvedRun, stack: Sequence[Optimization]) -> tuple[Evidence, ...]:
    """Evidence of each optimization from one more step, repeated until its update is not skipped."""
    skipped = True
    while skipped:
        with StepTracer(step) as tracer:
            record = train_step(tracer.watch(), TAKEN_STEPS)
        skipped = record.skipped
    trace = tracer.trace(record.loss, record.targets, skipped=None)
    return tuple(one.verify(trace, run) for one in stack)


if __name__ == "__main__":
    sys.exit(main())
