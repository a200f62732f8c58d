"""What a compiler that fuses loops leaves of a step, against bytes counted by hand; `test_compile` measures them."""

from dataclasses import replace

import pytest

from assay.config import ModelConfig, Run, TrainingConfig
from assay.config.run import Spec
from assay.cost import Cost, baseline, model_flops, replay
from assay.hardware import Machine
from assay.optimizations import optimizations_of
from assay.optimizations.compile.ledger import fuse_modules

B, T, C, H, V, LAYERS = 4, 16, 32, 2, 61, 3
MODEL = ModelConfig(n_layer=LAYERS, n_head=H, n_embd=C, context_length=T, vocab_size=V, bias=False)
MACHINE = Machine(processor="any", cores=2, memory_bytes=2**34)


def ledger(model: ModelConfig = MODEL, *stack: str) -> Cost:
    run = Run(model=model, training=TrainingConfig(batch_size=B), optimizations=tuple(map(Spec.parse, stack)))
    cost = baseline(run)
    for one in optimizations_of(run):
        cost = one.predict(cost, run, MACHINE)
    return cost


def compiled(cost: Cost) -> Cost:
    return fuse_modules(cost, ("embedding", *cost.block_sites, "head"))


def test_the_kept_tensors_are_those_that_products_read_statistics_and_a_mask_for_each_block() -> None:
    wide, rows = B * T * C * 4, B * T * 4
    block = (
        2 * (wide + 2 * rows + wide)  # norms: what comes in, mean and deviation; what the product reads
        + 3 * wide  # queries, keys and values
        + T * T  # the mask, of bytes
        + B * H * T * T * 4  # probabilities
        + wide  # merged heads
        + 2 * 4 * wide  # before and after the activation function
    )
    head = (
        2 * wide + 2 * rows + B * T * V * 4 + 2 * rows
    )  # logits, with the largest and the logarithm of each row's sum
    tokens = 2 * B * T * 8
    assert replay(compiled(ledger())).saved_bytes == LAYERS * block + head + tokens


def test_a_chain_that_only_loops_read_is_no_tensor() -> None:
    def made(cost: Cost) -> set[str]:
        return {one.name for operation in cost.tape for one in operation.outputs if one.view_of is None}

    gone = made(ledger()) - made(compiled(ledger()))
    chains = {f"blocks.{index}.attention.core:{name}" for index in range(LAYERS) for name in ("scaled", "masked")}
    assert gone == {*chains, "head:log_probabilities"}


def test_products_and_their_flops_stay() -> None:
    plain = ledger()
    assert model_flops(compiled(plain)) == model_flops(plain)
    for before, after in zip(plain.tape, compiled(plain).tape, strict=True):
        if before.kind == "contraction":
            assert (before.inputs, before.outputs, before.saves) == (after.inputs, after.outputs, after.saves)


def test_tables_are_made_where_they_are_read() -> None:
    rotary = MODEL.model_copy(update={"position": "rotary"})
    assert ledger(rotary).tables
    assert compiled(ledger(rotary)).tables == ()


def test_dropout_keeps_a_byte_for_each_number() -> None:
    noisy = ledger(MODEL.model_copy(update={"dropout": 0.1}))
    noise = [one for operation in compiled(noisy).tape for one in operation.extras if one.name.endswith("noise")]
    assert noise
    assert {one.dtype for one in noise} == {"bool"}


def test_a_weights_gradient_frees_what_it_read_before_the_other_factors_is_made() -> None:
    """In the last block's projection down; with a bias autograd's order stays."""
    inner = 4 * B * T * C * 4
    loops = compiled(ledger())
    in_order = replace(
        loops, tape=tuple(replace(one, compiled=one.compiled and not one.flops.forward) for one in loops.tape)
    )

    def highest(cost: Cost) -> int:
        last = f"blocks.{LAYERS - 1}"
        return max(one.nbytes for one in replay(cost).instants if (one.phase, one.site[:8]) == ("backward", last))

    assert highest(in_order) - highest(loops) == inner
    biased = compiled(ledger(MODEL.model_copy(update={"bias": True})))
    first = {one.site for one in biased.tape if one.flops.forward and one.compiled}
    assert first == {one.site for one in loops.tape if one.flops.forward and one.compiled} - {
        f"blocks.{index}.{name}" for index in range(LAYERS) for name in ("mlp.down", "attention.projection")
    }


def test_a_region_hands_its_gradients_over_together() -> None:
    """Updated in backward, gradients of a block whose weights are most of it are all there in the end."""
    few = MODEL.model_copy(update={"context_length": 4, "n_embd": 128})
    loops = compiled(ledger(few))
    loops = replace(loops, optimizer=replace(loops.optimizer, in_backward=True))
    ones = replace(loops, backward=replace(loops.backward, accumulated_together=()))

    def highest(cost: Cost) -> int:
        return max(one.nbytes for one in replay(cost).instants if (one.phase, one.site[:8]) == ("backward", "blocks.0"))

    weights = [one.nbytes for name, one in loops.pieces.items() if name.startswith("blocks.0.")]
    assert highest(loops) - highest(ones) >= sum(weights) - 2 * max(weights)


def test_logits_become_their_own_gradient() -> None:
    """Where three of them were there at once is one, and the highest moment is where the weight's gradient comes."""
    wide = MODEL.model_copy(update={"vocab_size": 5000})
    logits, weight = B * T * 5000 * 4, 5000 * C * 4
    plain, loops = (replay(cost).peak for cost in (ledger(wide), compiled(ledger(wide))))
    assert plain.nbytes - loops.nbytes == pytest.approx(2 * logits - weight, rel=0.01)
    assert loops.site == "head.projection"


@pytest.mark.parametrize("stack", ["bf16_mixed", "bf16_full", "sdpa_attention", "activation_checkpointing"])
def test_it_never_keeps_more_than_without_but_for_masks_and_rows(stack: str) -> None:
    cost = ledger(MODEL, stack)
    beside = LAYERS * T * T + 2 * B * T * 4
    assert replay(compiled(cost)).saved_bytes <= replay(cost).saved_bytes + beside
