"""Masks that depend on the dtype are kept and given to references, so honest runs with dropout are proven."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from assay.config.run import Spec
from assay.optimizations import resolve_run
from assay.step.program import Step
from assay.values.masks import (
    GivenMasks,
    MaskCount,
    MaskKeeper,
    MasksDiffer,
    given_masks,
    pack_mask,
    rate_of_flash,
    unpack_mask,
)
from support.masks_by_dtype import masks_by_dtype
from support.runs import SHAPE, run_with
from values.recording import proof_of_values

DROPPED = SHAPE.model_copy(update={"dropout": 0.2})
STACKS = (
    "bf16_mixed",
    "fp16_mixed",
    "bf16_full",
    "activation_checkpointing",
    "selective_checkpointing",
    "gradient_accumulation:micro_batches=2",
    "chunked_cross_entropy",
    "fused_adamw",
    "bf16_mixed+activation_checkpointing+gradient_accumulation:micro_batches=2",
)


@pytest.fixture
def by_dtype(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with masks_by_dtype(monkeypatch):
        yield


def run_of(stack: str) -> object:
    return resolve_run(run_with(*(Spec.parse(one) for one in stack.split("+")), model=DROPPED))


@pytest.mark.usefixtures("by_dtype")
def test_masks_of_unlike_dtypes_differ() -> None:
    ones = {dtype: torch.ones(1000, dtype=dtype) for dtype in (torch.float32, torch.bfloat16)}
    kept = []
    for one in ones.values():
        torch.manual_seed(1)
        kept.append(torch.nn.functional.dropout(one, 0.2).ne(0))
    assert 0.6 < (kept[0] == kept[1]).float().mean() < 0.76


@pytest.mark.usefixtures("by_dtype")
@pytest.mark.parametrize("stack", STACKS)
def test_an_honest_run_with_dropout_is_proven(stack: str, tmp_path: Path) -> None:
    found = proof_of_values(run_of(stack), tmp_path)  # type: ignore[arg-type]
    assert found.verdict, found.failures
    assert not found.without_dropout


@pytest.mark.parametrize("stack", ["bf16_mixed", "activation_checkpointing"])
def test_without_kept_masks_it_is_called_wrong(stack: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with masks_by_dtype(monkeypatch):
        monkeypatch.setattr("assay.values.masks.depend_on_dtype", lambda device: False)
        assert not proof_of_values(run_of(stack), tmp_path).verdict  # type: ignore[arg-type]


@pytest.mark.usefixtures("by_dtype")
def test_a_gradient_that_is_off_is_seen_with_dropout(tmp_path: Path) -> None:
    def scale_one(step: Step) -> None:
        (weight,) = (one for name, one in step.named_parameters() if name == "blocks.1.mlp.up.weight")
        weight.register_hook(lambda gradient: gradient * 1.0001)

    found = proof_of_values(run_of("fused_adamw"), tmp_path, scale_one)  # type: ignore[arg-type]
    assert "the gradient of blocks.1.mlp.up.weight in step 0" in found.failures[0]


@pytest.mark.usefixtures("by_dtype")
def test_a_layer_without_dropout_is_named(tmp_path: Path) -> None:
    def keep_all(step: Step) -> None:
        (dropout, *_) = (one for part in step.parts for one in part.modules() if isinstance(one, torch.nn.Dropout))
        dropout.p = 0.0

    found = proof_of_values(run_of("fused_adamw"), tmp_path, keep_all)  # type: ignore[arg-type]
    assert any("dropout mask" in one or "dropout zeroed" in one for one in found.failures)


@pytest.mark.usefixtures("by_dtype")
def test_masks_at_another_rate_are_named(tmp_path: Path) -> None:
    def drop_more(step: Step) -> None:
        for one in (one for part in step.parts for one in part.modules() if isinstance(one, torch.nn.Dropout)):
            one.p = 0.3

    found = proof_of_values(run_of("fused_adamw"), tmp_path, drop_more)  # type: ignore[arg-type]
    assert any("instead of 0.2" in one for one in found.failures)


@pytest.mark.usefixtures("by_dtype")
def test_a_program_that_shows_no_mask_is_compared_without_dropout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of("fused_adamw")
    from assay.optimizations.fused_adamw import FusedAdamw

    monkeypatch.setattr(FusedAdamw, "expect", lambda self, expected, run: expected.changed(shows_masks=False))
    found = proof_of_values(run, tmp_path)  # type: ignore[arg-type]
    assert found.verdict, found.failures
    assert found.without_dropout


@pytest.mark.parametrize("shape", [(1,), (7,), (8,), (2, 3, 5), (64, 64)])
def test_bits_come_back(shape: tuple[int, ...]) -> None:
    mask = torch.rand(shape) < 0.5
    bits = pack_mask(mask)
    assert bits.numel() == -(-mask.numel() // 8)
    assert torch.equal(unpack_mask(bits, shape), mask)


def test_a_recomputation_is_not_kept_again() -> None:
    kept: list[torch.Tensor] = []
    x = torch.ones(64, requires_grad=True)
    with MaskKeeper(kept.append) as keeper:
        dropped = torch.utils.checkpoint.checkpoint(torch.nn.functional.dropout, x, 0.5, use_reentrant=False)
        (dropped * dropped).sum().backward()
    assert len(kept) == 1
    assert keeper.count["zeros"] == int((~kept[0]).sum())


def test_flash_attention_drops_a_share_in_bytes() -> None:
    assert rate_of_flash(0.2) == 51 / 256  # one H200 dropped 0.1996 of all elements of a step, 48 % of them in flash
    assert rate_of_flash(0.1) == 26 / 256
    assert rate_of_flash(0.5) == 128 / 256
    assert MaskCount(0, 157_581_312, 0, 75_792_384, 0).due(0.2) / 157_581_312 == pytest.approx(0.19962, abs=1e-5)


def test_another_number_of_masks_is_an_error() -> None:
    mask = torch.ones(4, dtype=torch.bool)
    with given_masks([mask]):
        torch.nn.functional.dropout(torch.ones(4), 0.5)
        with pytest.raises(MasksDiffer, match="the baseline needs more"):
            torch.nn.functional.dropout(torch.ones(4), 0.5)
    with pytest.raises(MasksDiffer, match="1 more than the baseline"), given_masks([mask, mask]):
        torch.nn.functional.dropout(torch.ones(4), 0.5)
    with GivenMasks([mask]), pytest.raises(MasksDiffer, match=r"\[4\] where the baseline has \[5\]"):
        torch.nn.functional.dropout(torch.ones(5), 0.5)


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION])
def test_a_fused_kernel_shows_its_mask(kernel: SDPBackend) -> None:
    q, k, v = torch.randn(3, 2, 4, 100, 64, device="cuda", dtype=torch.bfloat16)
    kept: list[torch.Tensor] = []
    state = torch.cuda.get_rng_state()
    with sdpa_kernel(kernel):
        torch.nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=0.2, is_causal=True)
        after = torch.cuda.get_rng_state()
        torch.cuda.set_rng_state(state)
        with MaskKeeper(kept.append) as keeper:
            torch.nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=0.2, is_causal=True)
    assert [one.shape for one in kept] == [(2, 4, 100, 100)]
    assert keeper.count["elements"] == 2 * 4 * 100 * 101 // 2
    assert torch.equal(torch.cuda.get_rng_state(), after)  # looking at the mask moves no generator


@pytest.mark.gpu
@pytest.mark.device_values
@pytest.mark.parametrize("kernel", [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION])
def test_the_shown_mask_is_the_one_that_was_used(kernel: SDPBackend) -> None:
    q, k, v = torch.randn(3, 2, 4, 128, 64, device="cuda", dtype=torch.bfloat16)
    kept: list[torch.Tensor] = []
    with sdpa_kernel(kernel), MaskKeeper(kept.append):
        found = torch.nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=0.2, is_causal=True)
    scores = q.double() @ k.double().transpose(-1, -2) / 8
    causal = torch.ones(128, 128, dtype=torch.bool, device="cuda").tril()
    probabilities = scores.masked_fill(~causal, -torch.inf).softmax(-1)
    expected = (probabilities * kept[0] / 0.8) @ v.double()
    assert (found.double() - expected).norm() / expected.norm() < 0.01
