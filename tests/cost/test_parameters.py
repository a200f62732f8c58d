"""The inventory of parameters equals the module's, name by name, and the published integers."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.config import ModelConfig, load
from assay.cost import parameter_count, parameters
from assay.model import GPT
from support.runs import model_configs

PUBLISHED = {
    "gpt2-124m": 124_439_808,
    "gpt2-350m": 354_823_168,
    "gpt2-774m": 774_030_080,
    "gpt2-1558m": 1_557_611_200,
    # Numbers of parameters as repositories that use these models quote them. A tied output projection counts once.
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.1-8b": 8_030_261_248,
    "qwen2.5-0.5b": 494_032_768,
    "qwen3-0.6b": 596_049_920,
}


@settings(max_examples=60, deadline=None)
@given(config=model_configs(), experts=st.none() | st.integers(2, 5))
def test_names_and_shapes_are_the_modules(config: ModelConfig, experts: int | None) -> None:
    config = config.model_copy(update={"n_expert": experts})
    with torch.device("meta"):
        module = GPT(config)
    expected = {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}
    found = {name: tensor.shape for name, tensor in parameters(config).items()}
    assert list(found.items()) == list(expected.items())


@pytest.mark.parametrize(("preset", "count"), PUBLISHED.items())
def test_a_preset_has_as_many_parameters_as_published(preset: str, count: int) -> None:
    assert parameter_count(load(preset).model) == count


def test_gpt2_without_biases_and_with_a_padded_vocabulary() -> None:
    assert parameter_count(load("gpt2-124m", ["model.bias=false"]).model) == 124_337_664
    assert parameter_count(load("gpt2-124m", ["model.vocab_size=50304"]).model) == 124_475_904
