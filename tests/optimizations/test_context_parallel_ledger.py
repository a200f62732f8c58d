"""The ring's ledger: what ranks do together is what one device does, and what they send follows the closed forms."""

from collections import Counter
from dataclasses import replace

import pytest

from assay.config import Run
from assay.config.mesh import Mesh
from assay.cost import Cost, baseline, model_flops, replay
from assay.cost.kernels import CPU, CUDA, Kernels
from assay.cost.work import communications
from assay.optimizations.context_parallel.ledger import divide_context

SHAPE = {"n_layer": 2, "n_head": 4, "n_embd": 32, "context_length": 64, "vocab_size": 67}
KINDS = [{}, {"position": "rotary", "norm": "rms", "qk_norm": True, "n_kv_head": 2, "activation": "swiglu"}]
ROWS = 12


def run_of(**kind: object) -> Run:
    return Run.model_validate({"model": {**SHAPE, **kind}, "training": {"batch_size": ROWS}})


def ledger(degree: int, rank: int = 0, kernels: Kernels = CPU, **kind: object) -> Cost:
    return divide_context(replace(baseline(run_of(**kind), kernels), mesh=Mesh(cp=degree), rank=rank))


@pytest.mark.parametrize("degree", [2, 4])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_ranks_do_together_what_one_device_is_said_to_need(degree: int, kind: dict[str, object]) -> None:
    run = run_of(**kind)
    length, width, layers = 64, 32, 2
    # Of a fused core two products forward and five backward, of scores written out two and four.
    again = layers * ROWS * 2 * length * length * width
    assert degree * model_flops(ledger(degree, **kind)) == model_flops(baseline(run)) + again


@pytest.mark.parametrize("degree", [2, 4])
def test_keys_and_values_are_gathered_twice_and_their_gradients_passed_on_by_each_rank(degree: int) -> None:
    handed: Counter[str] = Counter()
    for one in communications(ledger(degree)):
        if one.what.endswith("core"):
            handed[one.collective] += round(one.handed_bytes(Mesh(cp=degree)))
    pair = 2 * 4 * ROWS * 64 * 32 // degree
    assert handed == {"all_gather": 2 * 2 * pair, "all_to_all": 2 * degree * pair}


def test_all_gradients_are_summed_wherever_their_pieces_lie() -> None:
    cost = ledger(2)
    sums = [one for one in communications(cost) if one.what == "gradients"]
    assert sum(one.payload_bytes for one in sums) == cost.parameter_bytes
    halved = replace(cost, pieces={name: tensor.piece(2, 0) for name, tensor in cost.pieces.items()})
    sums = [one for one in communications(halved) if one.what == "gradients"]
    assert sum(one.payload_bytes for one in sums) == halved.parameter_bytes < cost.parameter_bytes


def test_only_the_last_ranks_heads_lie_merged() -> None:
    saved = [replay(ledger(4, rank)).saved_bytes for rank in range(4)]
    assert saved[0] == saved[1] == saved[2] == saved[3] + 2 * 4 * ROWS * 64 * 32 // 4


def test_a_gpus_kernel_has_one_tensor_more_in_backward() -> None:
    here, there = (replay(ledger(2, kernels=one, n_hidden=32)).peak for one in (CPU, CUDA))
    assert (here.site, here.phase) == (there.site, there.phase) == ("blocks.1.attention.core", "backward")
    # A GPU has the batch, which on a CPU is not torch's, figures of nine steps to be read, and no step counts.
    beside = ledger(2).batch.nbytes + 9 * 16 - 4 * len(ledger(2).pieces)
    assert there.nbytes - here.nbytes == 4 * ROWS * 64 * 32 // 2 + beside
