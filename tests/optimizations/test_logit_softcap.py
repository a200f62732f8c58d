"""Logits within a cap: the model that is configured so, with and without chunks of the loss."""

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from assay.config import Spec
from assay.model import ChunkedCrossEntropy as InPieces
from assay.model.loss import VocabularyProjection
from assay.training.evaluation import evaluate
from support.configured import assert_as_configured, assert_proven_only_where_applied, assert_read_back, assert_refused
from support.peaks import assert_exact
from support.runs import SHAPE, run_with
from support.steps import build_step, micro_batches

CAP = Spec(name="logit_softcap", fields={"cap": 0.2})
CHUNKED = Spec(name="chunked_cross_entropy", fields={"chunks": 3})
WORDS = {"n_layer": 2, "n_head": 2, "n_embd": 32, "context_length": 16, "vocab_size": 611}


@pytest.mark.parametrize("others", [(), (CHUNKED,), (Spec(name="bf16_mixed"),)], ids=len)
def test_it_is_predicted_and_trained_as_a_model_that_is_configured_so(others: tuple[Spec, ...]) -> None:
    assert_as_configured(CAP, others, logit_softcap=0.2)


def test_it_is_proven_where_it_was_applied_and_only_there() -> None:
    tokens = 4 * SHAPE.context_length
    assert_proven_only_where_applied(CAP, f"the tanh of {tokens * SHAPE.vocabulary} logits in 1 calls")


def test_a_trained_model_is_read_as_a_capped_one(tmp_path: Path) -> None:
    assert_read_back(CAP, tmp_path)


def test_logits_are_those_of_the_formula() -> None:
    torch.manual_seed(0)
    projection = VocabularyProjection(6, 17, 1.5).double()
    x = 10 * torch.randn(5, 6, dtype=torch.float64)
    plain = F.linear(x, projection.weight).tolist()
    wanted = [[1.5 * math.tanh(one / 1.5) for one in row] for row in plain]
    torch.testing.assert_close(projection(x), torch.tensor(wanted, dtype=torch.float64), rtol=1e-14, atol=0)
    assert max(abs(one) for row in plain for one in row) > 3


@pytest.mark.parametrize("chunks", [2, 5, 13, 16])
def test_chunks_have_the_loss_and_gradients_of_the_whole(chunks: int) -> None:
    torch.manual_seed(0)
    projection = VocabularyProjection(6, 17, 0.7).double()
    x, targets = torch.randn(13, 6, dtype=torch.float64, requires_grad=True), torch.randint(17, (13,))
    targets[3] = -100
    found = []
    for loss in (lambda p, x, t: F.cross_entropy(p(x), t, reduction="sum"), InPieces(chunks)):
        value = loss(projection, x, targets)
        found.append([value, *torch.autograd.grad(0.25 * value, (x, projection.weight))])
    for whole, other in zip(*found, strict=True):
        assert (other - whole).norm() <= 1e-14 * whole.norm()


def test_an_evaluation_has_the_capped_logits() -> None:
    step, plain = (build_step(run_with(*specs)) for specs in ((CAP,), ()))
    for one in (step, plain):
        with torch.no_grad():
            one.parts[0].head.projection.weight.mul_(20)
    batches = micro_batches(step)
    losses = [evaluate(one, lambda: batches, 1.0, 0).loss for one in (step, plain)]
    (ids, targets), *_ = batches
    capped = 0.2 * (plain.parts[0].logits(ids) / 0.2).tanh()
    assert losses[0] == pytest.approx(F.cross_entropy(capped.flatten(0, 1), targets.flatten()).item(), rel=1e-5)
    assert losses[0] != pytest.approx(losses[1], rel=1e-2)


@pytest.mark.parametrize(
    "stack",
    [
        "logit_softcap",
        "logit_softcap+chunked_cross_entropy",
        "logit_softcap+bf16_mixed",
        "logit_softcap+bf16_full+chunked_cross_entropy+gradient_accumulation:micro_batches=2",
    ],
)
def test_the_peak_is_the_measured_one(stack: str) -> None:
    assert_exact(WORDS, 4, stack)


def test_padded_and_divided_logits_are_refused() -> None:
    padding, split = Spec(name="vocab_padding"), Spec(name="tensor_parallel")
    assert_refused(CAP, "model.logit_softcap=30 is set already", logit_softcap=30.0)
    assert_refused(CAP, "set model.vocab_size to the padded size", padding)
    assert_refused(padding, "set model.vocab_size to the padded size", logit_softcap=30.0)
    assert_refused(CAP, "not proven where tensor_parallel splits the logits", split, ranks=2)
    assert_refused(split, "model.logit_softcap is not proven", ranks=2, logit_softcap=30.0)
