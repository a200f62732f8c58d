"""Objects that outlive a step over ranks, on each rank."""

import json
import os
from typing import Any

from assay.config.loading import validate
from assay.optimizations import mesh_of, resolve_run
from assay.parallel.process_rank import join_ranks
from assay.step.program import Step
from assay.training.loop import train_step
from assay.worker.build import device_of
from support.freed import kept_after
from support.ranks import Case


def answer(case: Case) -> list[Any]:
    """Names of the types that stay alive, and bytes of tensors that do, for each rank."""
    from support.ranks.process import build_case

    run = resolve_run(validate(case["run"]))
    device = device_of(run, int(os.environ["LOCAL_RANK"]))
    with join_ranks(mesh_of(run), device) as ranks:

        def trained() -> Step:
            step: Step = build_case(case, run, device, ranks)
            train_step(step, 0), train_step(step, 1)
            ranks.meet()
            return step

        kept, nbytes = kept_after(trained)
        return [json.loads(one) for one in ranks.gather(json.dumps([kept, nbytes]))]
