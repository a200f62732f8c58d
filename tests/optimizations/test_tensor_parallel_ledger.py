"""Parts of the positions between pairs of matrices: the same bytes sent as tensor parallelism's, and less kept."""

from collections import Counter
from dataclasses import replace

import pytest

from assay.config import ModelConfig, Run
from assay.config.mesh import Mesh
from assay.cost import Cost, baseline, replay
from assay.cost.work import communications
from assay.optimizations.tensor_parallel.ledger import split_matrices

SHAPE = {"n_layer": 2, "n_head": 4, "n_embd": 32, "context_length": 16, "vocab_size": 64, "dropout": 0.1}
MESH = Mesh(tp=2)
KINDS = [
    {},
    {"activation": "swiglu"},
    {"norm_position": "post"},
    {"norm": "rms", "position": "rotary", "qk_norm": True, "tie_embeddings": False},
]


def ledger(parts: int, **kind: object) -> Cost:
    run = Run(model=ModelConfig.model_validate({**SHAPE, **kind}))
    return split_matrices(replace(baseline(run), mesh=MESH, sequence_parts=parts))


def sent(cost: Cost) -> Counter[str]:
    total: Counter[str] = Counter()
    for one in communications(cost):
        total[one.collective] += round(one.sent_bytes(MESH))
    return total


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_residual_stream_costs_what_the_sums_cost(kind: dict[str, object]) -> None:
    whole, parts = ledger(1, **kind), ledger(2, **kind)
    stream = 4 * 12 * 16 * 32
    pairs = 2 * SHAPE["n_layer"] + 1  # and the embedding behind which, and the head before which, it is divided
    expected = 2 * pairs * stream // 2
    gathered = sent(parts)["all_gather"] - (4 * 16 * 32 // 2 if "position" not in kind else 0)
    assert gathered == sent(parts)["reduce_scatter"] == expected
    # A gated pair gathers its input once, where its two matrices' gradients were summed apart.
    twice = SHAPE["n_layer"] * stream if kind.get("activation") == "swiglu" else 0
    streams_summed = sent(whole)["all_reduce"] - _small(whole)
    assert streams_summed - twice == 2 * expected


def _small(cost: Cost) -> int:
    """What is summed beside the stream: numbers of the loss, norms."""
    stream = 4 * 12 * 16 * 32
    return sum(round(one.sent_bytes(MESH)) for one in communications(cost) if one.payload_bytes != stream)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_less_is_kept_for_backward(kind: dict[str, object]) -> None:
    assert replay(ledger(2, **kind)).saved_bytes < 0.9 * replay(ledger(1, **kind)).saved_bytes
