"""Operators of steps of assay, as torch's CUDA build dispatches them on an absent GPU.

    python benchmarks/absent_operators.py ROWS.jsonl

Each row runs in a forked process, its third step under the recorder of `assay absent --times`. For each, one line of
JSON is printed.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["ASSAY_ABSENT_TIMES"] = "1"

from absent_steps import assays, in_fork


def operators(row: dict[str, Any]) -> dict[str, Any]:
    """Distinct operators of the third step and their order, or why there are none."""
    import torch
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    from assay.absent.inside.step_operators import RECORDED, StepOperators

    torch.set_num_threads(1)
    recorder = StepOperators()
    try:
        step = assays(row)
        for index in range(RECORDED):
            step(index)
        recorder.stepped(RECORDED, 0)
        register_optimizer_step_pre_hook(lambda *given: recorder.updates())
        step(RECORDED)
        recorder.stepped(RECORDED + 1, 0)
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {str(error).splitlines()[0]}"}
    return recorder.content() or {"skipped": "compiled or captured code has no operators"}


if __name__ == "__main__":
    for line in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines():
        print(json.dumps(in_fork(json.loads(line), operators)), flush=True)
