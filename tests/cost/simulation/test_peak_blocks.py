"""The blocks of a predicted peak are its parts in pieces, for every optimization of one device and for some stacks."""

from collections import Counter

import pytest

from assay.config import Run, Spec
from assay.config.loading import stack as specs
from assay.cost.simulation.peak_blocks import peak_blocks
from assay.estimator import estimate
from assay.optimizations import resolve
from support.peaks import MACHINE
from support.runs import ON_ONE_DEVICE, SHAPE, run_with

STACKS = (
    "sdpa_attention+bf16_mixed+activation_checkpointing",
    "gradient_accumulation:micro_batches=4+deferred_metrics",
    "cpu_offload",
    "fused_adamw+chunked_cross_entropy",
)


def on_cuda(*wanted: Spec, **model: object) -> Run:
    run = run_with(*wanted, model=SHAPE.model_copy(update=model))
    training = run.training.model_copy(update={"read_every": 1})  # deferred_metrics reads several steps together
    return run.model_copy(update={"device": "cuda", "training": training})


def assert_the_parts_in_pieces(run: Run) -> None:
    found = estimate(run, MACHINE)
    blocks = peak_blocks(found.cost, found.timeline.peak.nbytes)
    parts: Counter[str] = Counter()
    for (nbytes, part), count in blocks.items():
        assert count > 0
        parts[part] += nbytes * count
    assert {part: nbytes for part, nbytes in parts.items() if nbytes} == found.peak_parts


WITHOUT_BLOCKS = ("cuda_graphs", "compile", "streaming")
"""A captured graph has a pool, compiled code on a GPU needs Triton, and a stream a folder."""


@pytest.mark.parametrize("name", [one for one in ON_ONE_DEVICE if one not in WITHOUT_BLOCKS])
def test_blocks_sum_to_the_parts_of_the_peak(name: str) -> None:
    assert_the_parts_in_pieces(on_cuda(resolve(Spec(name=name)).spec(), tie_embeddings=name != "weight_tying"))


@pytest.mark.parametrize("stack", ["", *STACKS])
def test_blocks_of_stacks_sum_to_the_parts_of_the_peak(stack: str) -> None:
    assert_the_parts_in_pieces(on_cuda(*(specs([stack]) if stack else ())))


def test_only_one_gpu_has_known_blocks() -> None:
    run = on_cuda()
    known = estimate(run, MACHINE).peak_blocks
    assert {"weights", "optimizer state"} <= {one["made"] for one in known}
    assert estimate(run.model_copy(update={"device": "cpu"}), MACHINE).peak_blocks == []
    assert estimate(on_cuda(*specs(["cuda_graphs"])), MACHINE).peak_blocks == []
    two = run_with(*specs(["data_parallel"]), ranks=2).model_copy(update={"device": "cuda"})
    assert estimate(two, MACHINE).peak_blocks == []
