"""References that compute a few rows at a time give the gradients of the whole batch, with the same masks."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from assay.config.run import Spec
from assay.optimizations import resolve_run
from assay.step.program import Step
from assay.values.baseline import References
from assay.values.by_rows import forwards_by_rows, rows_at_once
from assay.values.masks import Noise
from support.masks_by_dtype import masks_by_dtype
from support.runs import SHAPE, run_with
from values.recording import proof_of_values

CUDA = torch.device("cuda")


@pytest.fixture(autouse=True)
def by_dtype(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with masks_by_dtype(monkeypatch):
        yield


@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("stack", ["chunked_cross_entropy", "bf16_mixed", "gradient_accumulation:micro_batches=2"])
def test_an_honest_run_is_proven_row_by_row(
    stack: str, dropout: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(References, "rows", 1)
    run = resolve_run(run_with(Spec.parse(stack), model=SHAPE.model_copy(update={"dropout": dropout})))
    found = proof_of_values(run, tmp_path)
    assert found.verdict, found.failures


def test_a_gradient_that_is_off_is_seen_row_by_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def scale_one(step: Step) -> None:
        (weight,) = (one for name, one in step.named_parameters() if name == "blocks.1.mlp.up.weight")
        weight.register_hook(lambda gradient: gradient * 1.0001)

    monkeypatch.setattr(References, "rows", 1)
    model = SHAPE.model_copy(update={"dropout": 0.2})
    found = proof_of_values(resolve_run(run_with(Spec(name="chunked_cross_entropy"), model=model)), tmp_path, scale_one)
    assert "the gradient of blocks.1.mlp.up.weight in step 0" in found.failures[0]


def test_masks_follow_their_rows() -> None:
    batches = [(torch.arange(4) + 4 * part, torch.arange(4)) for part in range(2)]
    masks = [torch.arange(4) + 100 * number for number in range(6)]  # three masks a forward
    parts, noise = forwards_by_rows(batches, Noise({}, masks), 3)
    assert [ids.tolist() for ids, _ in parts] == [[0, 1, 2], [3], [4, 5, 6], [7]]
    assert [one.tolist() for one in noise.masks or ()][:6] == [
        [0, 1, 2],
        [100, 101, 102],
        [200, 201, 202],
        [3],
        [103],
        [203],
    ]


def test_whole_batches_stay_whole() -> None:
    batches = [(torch.arange(4), torch.arange(4))]
    assert forwards_by_rows(batches, Noise({}), None)[0] == batches
    assert forwards_by_rows(batches, Noise({}), 4)[0] == batches


def test_rows_are_as_many_as_the_memory_of_the_run_allows() -> None:
    """A run that saves its activations leaves room for fewer rows in float64 than a run that keeps them."""
    model = SHAPE.model_copy(update={"n_embd": 64, "context_length": 128})
    training = {"batch_size": 32}
    plain, saving = (
        resolve_run(run.model_copy(update={"device": "cuda", "training": run.training.model_copy(update=training)}))
        for run in (run_with(model=model), run_with(Spec(name="activation_checkpointing"), model=model))
    )
    most, few = (rows_at_once(run, run.model, CUDA) for run in (plain, saving))
    assert most is not None
    assert few is not None
    assert 1 <= few < most <= 16
    assert rows_at_once(plain, plain.model, torch.device("cpu")) is None
    assert rows_at_once(plain, plain.model.model_copy(update={"n_expert": 4}), CUDA) is None
