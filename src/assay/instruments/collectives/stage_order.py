"""Record the order in which a rank of a pipeline runs the forwards and backwards of its stages."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from assay.step.program import Step


@contextmanager
def record_stages(step: Step, ran: list[str]) -> Iterator[None]:
    """Context that appends to `ran` each call of a stage on this rank: its kind, stage and micro-batch, as in `F0.1`.

    F is a forward and B a whole backward; I and W are its halves, the gradients of inputs and of weights. Without a
    pipeline nothing is recorded.
    """
    mesh = step.program.parallel.mesh
    if mesh is None or mesh.size((mesh.mesh_dim_names or ()).index("pp")) == 1:
        yield
        return
    from torch.distributed.pipelining import PipelineStage

    kinds = {"forward_one_chunk": "F", "backward_one_chunk": "B", "backward_weight_one_chunk": "W"}
    before = {name: getattr(PipelineStage, name) for name in kinds}

    def marked(run: Callable[..., Any], kind: str) -> Callable[..., Any]:
        def marking(stage: Any, micro_batch: int, *args: Any, **kwargs: Any) -> Any:
            half = kind == "B" and not kwargs.get("full_backward", True)
            ran.append(f"{'I' if half else kind}{stage.stage_index}.{micro_batch}")
            return run(stage, micro_batch, *args, **kwargs)

        return marking

    for name, kind in kinds.items():
        setattr(PipelineStage, name, marked(before[name], kind))
    try:
        yield
    finally:
        for name, run in before.items():
            setattr(PipelineStage, name, run)
