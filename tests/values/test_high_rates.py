"""Honest runs after training at high rates pass the value check: it knows what rounding does at their weights."""

from pathlib import Path

import pytest
import torch

from assay.config import ModelConfig, Run, Spec, TrainingConfig
from assay.config.run import ResolvedRun
from assay.data import Prepared
from assay.optimizations import expected_of, resolve_run
from assay.reference.expected import Expected
from assay.step.program import Step
from assay.training.loop import read, take_step
from assay.values import check
from assay.values.baseline import References
from assay.values.check import Check
from assay.values.recorded import Recorded
from support.steps import CPU, build_step
from values.recording import proof_of_values, record_steps

MODEL = ModelConfig(n_layer=1, n_head=4, n_embd=64, context_length=32, vocab_size=256)
TRAINED = 60
"""Steps before the recorded ones."""


def trained(seed: int, technique: str) -> ResolvedRun:
    training = TrainingConfig(
        batch_size=3, steps=TRAINED + 5, warmup_steps=2, learning_rate=0.05, min_learning_rate=1e-4, schedule="constant"
    )
    specs = (Spec(name=technique),)
    return resolve_run(Run(model=MODEL, training=training, device="cpu", seed=seed, optimizations=specs))


@pytest.mark.parametrize("seed", [5, 8])
def test_an_honest_run_is_proven_by_the_rounding_at_its_weights(seed: int, corpus: Prepared, tmp_path: Path) -> None:
    run = trained(seed, "bf16_mixed")
    step = build_step(run, corpus)
    for index in range(TRAINED):
        read(step, [take_step(step, index)])
    record_steps(step, run, tmp_path, steps=2, first=TRAINED)

    def failures(expected: Expected) -> tuple[str, ...]:
        references = References(run, expected, corpus, CPU)
        return Check(Recorded(tmp_path), run, expected, corpus, CPU, references).proof().failures

    expected = expected_of(run)
    assert failures(expected) == ()
    stated = expected.gradients.model_copy(update={"rounding": None})
    assert failures(expected.changed(gradients=stated)), "the bounds that the technique states would suffice"


def test_where_attention_is_sharp_a_fused_kernel_is_held_against_its_own_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sharpen(step: Step) -> None:
        with torch.no_grad():
            for name, one in step.named_parameters():
                if name.endswith("qkv.weight"):
                    one[: 2 * MODEL.n_embd].mul_(400.0)

    def failures(folder: Path) -> list[str]:
        found = proof_of_values(trained(1, "sdpa_attention"), folder, sharpen).failures
        return [one for one in found if "initial weights" not in one]

    assert failures(tmp_path / "all") == []
    monkeypatch.setattr(check, "_DRAWS", 1)
    (said,) = failures(tmp_path / "one")[:1]
    assert "times its bound" in said, "one baseline's own error would suffice"
