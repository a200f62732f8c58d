"""The blocks of a model: modules of one class in a row, which techniques may treat alike.

The GPT's are its `Block`s. A model of the user's own has them in a `ModuleList` whose modules all have one class. Of
several such lists, the one with the most parameters counts.
"""

from collections.abc import Iterable

from torch import nn

from assay.model.gpt import Block


def blocks_of(parts: Iterable[nn.Module]) -> dict[nn.Module, int]:
    """Return the blocks of a model in order, each with its number; empty if it has none."""
    named = [item for part in parts for item in part.named_modules()]
    own: dict[nn.Module, int] = {
        module: int(name.rpartition(".")[2]) for name, module in named if isinstance(module, Block)
    }
    if own:
        return own
    lists = [module for _, module in named if isinstance(module, nn.ModuleList) and _alike(module)]
    chosen = max(lists, key=lambda one: sum(p.numel() for p in one.parameters()), default=())
    return {module: number for number, module in enumerate(chosen)}


def _alike(modules: nn.ModuleList) -> bool:
    kinds = {type(one) for one in modules}
    return len(kinds) == 1 and not kinds & {nn.ModuleList, nn.ModuleDict}
