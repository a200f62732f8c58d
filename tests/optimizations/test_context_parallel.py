"""Context parallelism: refused where torch's ring cannot run, or would be wrong. What it does: `tests/parallel`."""

import pytest

from assay.config import ModelConfig, Run, Spec, TrainingConfig
from assay.estimator import estimate
from assay.hardware import Accelerator, Machine
from assay.optimizations import Conflict, Unavailable, check
from support.runs import SHAPE

CPU = Machine(processor="any", cores=2, memory_bytes=2**34)
GPUS = CPU.model_copy(update={"accelerators": (Accelerator(name="any", memory_bytes=2**36),) * 2})
RING = "context_parallel+sdpa_attention"
LONG = SHAPE.model_copy(update={"context_length": 128})


def stacked(text: str, model: ModelConfig = LONG, device: str = "cuda", ranks: int = 2) -> Run:
    specs, training = tuple(map(Spec.parse, text.split("+"))), TrainingConfig(batch_size=8)
    return Run(model=model, training=training, ranks=ranks, device=device, optimizations=specs)


def test_with_fused_attention_it_is_accepted_on_gpus_and_not_on_a_cpu() -> None:
    check(stacked(RING), GPUS)
    with pytest.raises(Unavailable, match="no causal kernel for a CPU"):
        check(stacked(RING, device="cpu"), CPU)


@pytest.mark.parametrize(
    ("text", "changes", "ranks", "says"),
    [
        ("context_parallel", {}, 2, "add sdpa_attention"),
        (RING, {"context_length": 18}, 2, "cuts a sequence into 4 chunks"),
        (RING, {"context_length": 64}, 2, "a multiple of 128, or add bf16_mixed"),
        (f"{RING}:backend=math", {}, 2, "needs a fused attention kernel"),
        (RING, {"dropout": 0.1}, 2, "set model.dropout=0"),
        (RING, {"n_expert": 4}, 2, "divides dense models only"),
        (f"{RING}+pipeline_parallel", {}, 4, "both replace the step's gradients"),
        (f"{RING}+sequence_parallel+tensor_parallel", {}, 4, "both replace the step's activations between matrices"),
    ],
)
def test_a_request_that_would_be_wrong_is_refused(text: str, changes: dict[str, float], ranks: int, says: str) -> None:
    with pytest.raises(Conflict, match=says):
        check(stacked(text, LONG.model_copy(update=changes), ranks=ranks), GPUS)


@pytest.mark.parametrize(
    ("beside", "ranks"),
    [
        ("data_parallel", 4),
        ("fully_sharded", 4),
        ("fully_sharded:offload=true", 4),
        ("tensor_parallel", 4),
        ("activation_checkpointing", 2),
        ("bf16_mixed", 2),
        ("gradient_accumulation", 2),
    ],
)
def test_memory_of_a_rank_beside_other_techniques_is_predicted(beside: str, ranks: int) -> None:
    machine = GPUS.model_copy(update={"accelerators": GPUS.accelerators * 2})
    ring, both = (
        estimate(stacked(text, ranks=count), machine) for text, count in ((RING, 2), (f"{RING}+{beside}", ranks))
    )
    whole = estimate(stacked("sdpa_attention", ranks=1), machine)
    assert both.timeline.peak.nbytes < ring.timeline.peak.nbytes < whole.timeline.peak.nbytes
    assert both.timeline.saved_bytes <= ring.timeline.saved_bytes < whole.timeline.saved_bytes
