"""Context parallelism: refused where torch's ring cannot run, or would be wrong. What it does: `tests/parallel`."""

import pytest

from assay.config import ModelConfig, Run, Spec
from assay.hardware import Accelerator, Machine
from assay.optimizations import Conflict, Unavailable, check
from optimizations.laboratory import SHAPE

CPU = Machine(processor="any", cores=2, memory_bytes=2**34)
GPUS = CPU.model_copy(update={"accelerators": (Accelerator(name="any", memory_bytes=2**36),) * 2})
RING = "context_parallel+sdpa_attention"


def stacked(text: str, model: ModelConfig = SHAPE, device: str = "cuda", ranks: int = 2) -> Run:
    return Run(model=model, ranks=ranks, device=device, optimizations=tuple(map(Spec.parse, text.split("+"))))


def test_with_fused_attention_it_is_accepted_on_gpus_and_not_on_a_cpu() -> None:
    check(stacked(RING), GPUS)
    with pytest.raises(Unavailable, match="no causal kernel for a CPU"):
        check(stacked(RING, device="cpu"), CPU)


@pytest.mark.parametrize(
    ("text", "changes", "ranks", "says"),
    [
        ("context_parallel", {}, 2, "add sdpa_attention"),
        (RING, {"context_length": 18}, 2, "deals out 4 pieces"),
        (RING, {"dropout": 0.1}, 2, "set model.dropout=0"),
        (RING, {"n_expert": 4}, 2, "divides dense models only"),
        (f"{RING}+pipeline_parallel", {}, 4, "both replace the step's gradients"),
        (f"{RING}+sequence_parallel+tensor_parallel", {}, 4, "both replace the step's activations between matrices"),
    ],
)
def test_what_would_be_wrong_is_refused(text: str, changes: dict[str, float], ranks: int, says: str) -> None:
    with pytest.raises(Conflict, match=says):
        check(stacked(text, SHAPE.model_copy(update=changes), ranks=ranks), GPUS)
