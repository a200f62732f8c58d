"""The tape of a model: blocks that are repeated under other names are those that are written one by one."""

from pathlib import Path

import pytest

from assay.config import ModelConfig, load
from assay.config.loading import presets
from assay.cost.gpt_tape import Forward
from assay.cost.kernels import CPU, CUDA
from assay.cost.operation import Tensor


class OneByOne(Forward):
    """A pass that writes every block."""

    def _blocks(self, x: Tensor) -> Tensor:
        for index in range(self.config.n_layer):
            x = self._block(self.writer.at(f"blocks.{index}"), x)
        return x


def assert_equal(config: ModelConfig, rows: int) -> None:
    for kernels in (CPU, CUDA):
        assert Forward(config, rows, kernels).tape() == OneByOne(config, rows, kernels).tape()


def test_blocks_of_random_models_are_repeated_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    from random_peaks import drawn  # type: ignore[import-not-found]

    for number in range(120):
        run = drawn(number)
        assert_equal(run.model, run.training.batch_size)


@pytest.mark.parametrize("preset", presets())
def test_blocks_of_a_preset_are_repeated_exactly(preset: str) -> None:
    run = load(preset, ["model.vocab_size=128"])
    assert_equal(run.model.model_copy(update={"n_layer": min(3, run.model.n_layer)}), 2)


def test_blocks_of_experts_are_repeated_exactly() -> None:
    experts = ["model.n_expert=4", "model.n_expert_active=2", "model.n_layer=12", "model.vocab_size=128"]
    assert_equal(load("demo", experts).model, 2)
