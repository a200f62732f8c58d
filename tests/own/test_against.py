"""A changed step beside a baseline step: right changes pass, faults are found, and what cannot be compared says why."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from typer.testing import CliRunner

import assay
from assay.cli.main import app
from assay.errors import UsageError
from assay.own.against import STEPS, compare_steps
from assay.records.evidence import ValueProof

WIDTH, WORDS, ROWS, LENGTH = 16, 32, 4, 9


class Attention(nn.Module):
    """Causal attention of two heads, written out or by torch's fused kernel."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.into, self.out, self.fused = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH), fused

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (one.unflatten(-1, (2, -1)).transpose(1, 2) for one in self.into(x).chunk(3, -1))
        if self.fused:
            mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        else:
            scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
            later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
            mixed = scores.masked_fill(later, -torch.inf).softmax(-1) @ value
        return self.out(mixed.transpose(1, 2).flatten(2))


class Model(nn.Module):
    def __init__(self, fused: bool, recomputed: bool) -> None:
        super().__init__()
        self.embed, self.attention, self.recomputed = nn.Embedding(WORDS, WIDTH), Attention(fused), recomputed
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        mixed = checkpoint(self.attention, x, use_reentrant=False) if self.recomputed else self.attention(x)
        return self.head(self.norm(x + mixed))


def build(
    fused: bool = False,
    batch: str = "fixed",
    mixed: bool = False,
    recomputed: bool = False,
    fault: Callable[[Model], None] = lambda model: None,
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW,
    seed: int = 0,
    **options: Any,
) -> Callable[[], Tensor]:
    """A step whose batch is fixed, drawn from torch's generator, or the next of a list."""
    torch.manual_seed(seed)
    model = Model(fused, recomputed)
    update = optimizer(model.parameters(), lr=1e-2, **options)
    batches = torch.randint(WORDS, (64, ROWS, LENGTH))
    calls = iter(range(64))

    def step() -> Tensor:
        rows = torch.randint(WORDS, (ROWS, LENGTH)) if batch == "drawn" else batches[0]
        rows = batches[next(calls)] if batch == "listed" else rows
        with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
            logits = model(rows[:, :-1])
        loss = functional.cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].flatten())
        loss.backward()
        fault(model)
        update.step()
        update.zero_grad()
        return loss.detach()

    return step


def lost_row(model: Model) -> None:
    assert model.attention.into.weight.grad is not None
    model.attention.into.weight.grad[3] = 0


def scaled(model: Model) -> None:
    for one in model.parameters():
        assert one.grad is not None
        one.grad *= 1.0001


def skipped(model: Model) -> None:
    model.head.bias.grad = None


@pytest.mark.parametrize("batch", ["fixed", "drawn"])
def test_another_order_of_summation_is_right_and_not_exact(batch: str) -> None:
    near = compare_steps(build(fused=True, batch=batch), build(batch=batch), "reassociated")
    assert near.verdict, near.failures
    assert near.checked
    assert (near.steps, near.updates, near.gradients) == (STEPS, STEPS, 9)
    assert near.gradient_error is not None
    assert 0 < near.gradient_error < 1e-5
    assert not compare_steps(build(fused=True, batch=batch), build(batch=batch), "exact").verdict


def test_recomputation_is_exact_and_its_modules_are_not_found_twice() -> None:
    kept, again = build(), build(recomputed=True)
    found = compare_steps(again, kept, "exact")
    assert found.verdict, found.failures
    assert found.gradients == 9
    assert assay.measure(build(recomputed=True), blocks=1).program.modules == ("Model",)


@pytest.mark.parametrize("batch", ["fixed", "drawn", "listed"])
def test_equal_steps_are_exact(batch: str) -> None:
    found = compare_steps(build(batch=batch, foreach=True), build(batch=batch, foreach=False), "exact")
    assert found.verdict, found.failures
    assert (found.loss_error, found.gradient_error) == (0.0, 0.0)


def test_products_in_16_bits_are_lossy_and_nothing_else() -> None:
    found = compare_steps(build(mixed=True), build(), "lossy")
    assert found.verdict, found.failures
    assert not compare_steps(build(mixed=True), build(), "reassociated").verdict
    same = compare_steps(build(), build(), "lossy")
    assert same.failures == ("no gradient has the rounding error of 16 bits: the largest relative error is 0.0e+00",)


@pytest.mark.parametrize("fault", [lost_row, scaled])
def test_wrong_gradients_are_found(fault: Callable[[Model], None]) -> None:
    found = compare_steps(build(fused=True, fault=fault), build(), "reassociated")
    assert not found.verdict
    assert found.failures[0].startswith("the gradient of ")


@pytest.mark.parametrize(
    "changes", [{"weight_decay": 0.1}, {"betas": (0.9, 0.9)}, {"optimizer": torch.optim.SGD}, {"eps": 1e-3}]
)
def test_another_rule_of_the_optimizer_is_found(changes: dict[str, Any]) -> None:
    found = compare_steps(build(**changes), build(), "exact")
    assert not found.verdict
    assert all(one.startswith("the update of ") for one in found.failures[:3]), found.failures


def shared_steps() -> ValueProof:
    step = build()
    return compare_steps(step, step, "exact")


@pytest.mark.parametrize(
    ("proof", "says"),
    [
        (shared_steps, "both steps train the same weights"),
        (lambda: compare_steps(build(seed=1), build(), "exact"), "begin with other values of embed.weight"),
        (lambda: compare_steps(build(fault=skipped), build(), "exact"), "only one of the two steps updates head.bias"),
        (
            lambda: compare_steps(build(batch="listed"), build(batch="listed"), "reassociated"),
            "the baseline has another loss when it is called again",
        ),
        (lambda: compare_steps(lambda: None, build(), "exact"), "made no update with an optimizer of torch"),
    ],
)
def test_an_impossible_comparison_says_why(proof: Callable[[], ValueProof], says: str) -> None:
    found = proof()
    assert says in found.unchecked
    assert not found.checked


def test_a_comparison_leaves_dtypes_and_the_random_state_as_they_were() -> None:
    baseline = build()
    before = torch.get_rng_state()
    assert compare_steps(build(fused=True), baseline, "reassociated").checked
    assert torch.equal(torch.get_rng_state(), before)
    assert assay.measure(baseline, blocks=1).flops.keys() == {"float32"}


def test_a_measured_step_has_the_proof_of_its_change() -> None:
    found = assay.measure(build(fused=True), against=build(), blocks=1)
    assert found.proof is not None
    assert (found.proof.status, found.proof.values.verdict) == ("done", True)
    counts = {(one.name, one.phase): (one.baseline, one.count) for one in found.proof.operators}
    assert counts["aten._softmax", "forward"] == (1, 0)
    assert counts["aten._scaled_dot_product_flash_attention_for_cpu", "forward"] == (0, 1)
    assert all(one.baseline != one.count for one in found.proof.operators)
    text = str(found)
    assert "right in 3 steps" in text
    assert "measured one after the other" in text
    assert found.to_dict()["proof"]["status"] == "done"


def test_a_change_without_effect_and_a_wrong_one_have_their_words() -> None:
    same = assay.measure(build(), against=build(), blocks=1)
    assert same.proof is not None
    assert (same.proof.status, same.proof.operators) == ("no_effect", ())
    assert same.own_peak_bytes == same.proof.baseline.own_peak_bytes
    assert "no effect: its operators, its memory" in str(same)
    wrong = assay.measure(build(fused=True, fault=lost_row), against=build(), blocks=1)
    assert wrong.proof is not None
    assert wrong.proof.status == "wrong_values"
    assert "WRONG: the gradient of attention.into.weight" in str(wrong)


def test_wrong_arguments_are_refused() -> None:
    for arguments, says in (
        ({"against": "file.py:build"}, "must both be functions"),
        ({"against": 3}, "a step is a function or the text"),
        ({"against": build(), "numerics": "close"}, "numerics is one of exact, reassociated, lossy"),
    ):
        with pytest.raises(UsageError, match=says):
            assay.measure(build(), **arguments)


STEPS_FILE = """
import torch


def build(lr=0.1):
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    x = torch.ones(2, 4)

    def step():
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def plain():
    return build()


def faster():
    return build(lr=0.2)


def broken():
    def step():
        raise ValueError("nothing to train")
    return step
"""


@pytest.mark.usefixtures("forked")
def test_named_steps_are_compared_in_processes_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "steps.py").write_text(STEPS_FILE)
    monkeypatch.chdir(tmp_path)
    words = ["measure", "steps.py:faster", "--against", "steps.py:plain", "--blocks", "1"]
    wrong = CliRunner().invoke(app, words)
    assert wrong.exit_code == 3
    assert "wrong values" in wrong.output
    assert "the update of " in wrong.output
    with pytest.raises(UsageError, match=r"failed: ValueError: nothing to train \(steps.py, line 31\)"):
        assay.measure("steps.py:plain", against="steps.py:broken", blocks=1)
