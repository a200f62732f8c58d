"""The blocks of a model: modules of one class in a row, which techniques may treat alike.

The GPT's are its `Block`s. A model of the user's own may name them (`assay.OwnModel(blocks=…)`). Otherwise they are in
a `ModuleList` or a `Sequential` whose modules all have one class. Lists inside a list count as one. Of several such
lists, the one with the most parameters counts.
"""

from collections.abc import Iterable, Iterator

from torch import nn

from assay.model.gpt import Block

_LISTS = (nn.ModuleList, nn.ModuleDict)
"""Modules that hold others and cannot be called."""


def blocks_of(parts: Iterable[nn.Module]) -> dict[nn.Module, int]:
    """Return the blocks of a model in order, each with its number; empty if it has none."""
    parts = list(parts)
    named = [item for part in parts for item in part.named_modules()]
    own: dict[nn.Module, int] = {
        module: int(name.rpartition(".")[2]) for name, module in named if isinstance(module, Block)
    }
    if own:
        return own
    from assay.model.own_model import OwnPart  # the GPT's blocks were found above, and need no code of a user's own

    told = [block for part in parts if isinstance(part, OwnPart) for block in part.blocks]
    if told:
        return {module: number for number, module in enumerate(told)}
    lists = [list(_inside(module)) for _, module in named if isinstance(module, nn.Sequential | nn.ModuleList)]
    alike = [modules for modules in lists if len({type(one) for one in modules}) == 1]
    chosen = max(alike, key=lambda some: sum(p.numel() for one in some for p in one.parameters()), default=[])
    return {module: number for number, module in enumerate(chosen)}


def _inside(modules: nn.Module) -> Iterator[nn.Module]:
    for one in modules.children():
        if isinstance(one, _LISTS):
            yield from _inside(one)
        else:
            yield one
