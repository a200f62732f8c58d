"""Blocks of a model: listed ones, nested ones, those that a user names, and what is none."""

from torch import nn

from assay.config import ModelConfig
from assay.model import GPT
from assay.model.blocks import blocks_of
from assay.model.own_model import OwnModel, OwnPart


def lines(count: int) -> list[nn.Linear]:
    return [nn.Linear(2, 2) for _ in range(count)]


def test_the_gpt_s_blocks_are_its_own() -> None:
    model = GPT(ModelConfig(n_layer=3, n_head=1, n_embd=4, context_length=4, vocab_size=8))
    assert blocks_of([model]) == {block: number for number, block in enumerate(model.blocks)}


def test_modules_of_one_class_in_a_list_or_a_sequence_are_blocks() -> None:
    for model in (nn.ModuleList(lines(3)), nn.Sequential(*lines(3))):
        assert list(blocks_of([model])) == list(model)
    assert blocks_of([nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))]) == {}
    assert blocks_of([nn.Linear(2, 2)]) == {}


def test_lists_inside_a_list_count_as_one() -> None:
    every = lines(6)
    nested = nn.ModuleList(nn.ModuleList(every[start : start + 2]) for start in (0, 2, 4))
    assert list(blocks_of([nested])) == every
    by_name = nn.ModuleList([nn.ModuleDict({"a": every[0], "b": every[1]}), nn.ModuleDict({"a": every[2]})])
    assert list(blocks_of([by_name])) == every[:3]


def test_the_list_with_most_parameters_counts() -> None:
    small, large = nn.ModuleList(lines(3)), nn.ModuleList([nn.Linear(9, 9), nn.Linear(9, 9)])
    assert list(blocks_of([nn.ModuleDict({"small": small, "large": large})])) == list(large)


def test_named_blocks_are_those_that_were_named() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Bilinear(2, 2, 2))
    part = OwnPart(OwnModel(model, blocks=[model[2], model[0]]))
    assert blocks_of([part]) == {model[2]: 0, model[0]: 1}
    assert [name for name, _ in part.named_parameters()] == [f"model.{name}" for name, _ in model.named_parameters()]
