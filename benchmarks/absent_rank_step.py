"""Three steps of assay on one rank whose other ranks may be absent, and what the rank then holds.

    python benchmarks/absent_rank_step.py ROW.json FOUND.json

The row has a preset, overrides, a stack and a number of ranks. torchrun's variables say which rank this is.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from absent_steps import peaks_of
from assay import api
from assay.optimizations import mesh_of, optimizations_of, resolve_run
from assay.parallel.dtensor import local
from assay.parallel.process_rank import join_ranks
from assay.training.build import baseline, build
from assay.training.loop import train_step
from support.random_data import RandomData


def nbytes(tensors: Any) -> int:
    """Bytes of this rank's parts of some tensors."""
    return sum(local(one).nbytes for one in tensors)


def found(row: dict[str, Any]) -> dict[str, int]:
    """Peaks of the third step, and the bytes of weights, gradients and states of this rank."""
    run = resolve_run(
        api.configure(row["preset"], [*row["over"], "device=cuda", f"ranks={row['ranks']}"], [row["stack"]])
    )
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.manual_seed(0)
    with join_ranks(mesh_of(run), device) as ranks:
        program = baseline(run, RandomData(run), device, None, ranks)  # type: ignore[arg-type]
        for one in optimizations_of(run):
            program = one.apply(program, run)
        step = build(program)
        gradients = [0]

        def before_update(*_: Any) -> None:
            every = [one.grad for _, one in step.named_parameters() if one.grad is not None]
            gradients[0] = max(gradients[0], nbytes(every))

        register_optimizer_step_pre_hook(before_update)
        peaks = peaks_of(lambda index: train_step(step, index))
        states = [one for state in step.optimizer.state.values() for one in state.values() if torch.is_tensor(one)]
        # Shards of weights that do not divide are padded to equal ones, which only their storage shows.
        weights = sum(local(one).untyped_storage().nbytes() for _, one in step.named_parameters())
        return {**peaks, "weights": weights, "gradients": gradients[0], "states": nbytes(states)}


if __name__ == "__main__":
    torch.set_num_threads(1)
    Path(sys.argv[2]).write_text(json.dumps(found(json.loads(Path(sys.argv[1]).read_text()))))
