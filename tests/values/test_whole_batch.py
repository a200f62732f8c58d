"""A step that is cut into micro-batches has the loss of its whole batch, or the check says that it has not."""

from pathlib import Path

import pytest

from support.counted_losses import counted_run
from values.recording import proof_of_values

CUT = "gradient_accumulation:micro_batches=4"


@pytest.mark.parametrize(
    "model",
    [
        "own(padded)",
        "own(masked)",
        "own(contrastive)",
        "own(mean, normed)",
        "own(contrastive, nn.Dropout)",
        "own(mean, dropped_and_normed)",
    ],
)
def test_a_loss_that_does_not_add_up_is_wrong(tmp_path: Path, model: str) -> None:
    proof = proof_of_values(counted_run(tmp_path, model, CUT), tmp_path)
    assert not proof.verdict
    assert proof.failures[0].startswith("the loss does not add up over rows: in step 0 it is ")
    assert "return (sum, count), or do not accumulate" in proof.failures[0]
    assert len(proof.failures) == 1, "the micro-batches themselves are right"


def test_so_is_a_loss_of_which_only_the_gradient_does_not_add_up(tmp_path: Path) -> None:
    (failure,) = proof_of_values(counted_run(tmp_path, "own(steep)", CUT), tmp_path).failures
    assert "its gradient in 4 parts is off that of one batch" in failure


@pytest.mark.parametrize(
    "model",
    [
        "own(mean)",
        "own(ignored)",
        "own(summed)",
        "own(listed)",
        "own(masked_sum)",
        "own(summed, nn.Dropout)",
        "own(drawn)",
    ],
)
@pytest.mark.parametrize("technique", ["", "+bf16_mixed"])
def test_a_loss_that_adds_up_is_right(tmp_path: Path, model: str, technique: str) -> None:
    proof = proof_of_values(counted_run(tmp_path, model, *f"{CUT}{technique}".split("+")), tmp_path)
    assert proof.verdict, proof.failures


def test_a_whole_batch_is_not_compared_with_itself(tmp_path: Path) -> None:
    assert proof_of_values(counted_run(tmp_path, "own(contrastive)", "fused_adamw"), tmp_path).verdict
