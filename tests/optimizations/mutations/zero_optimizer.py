"""ZeRO's first stage, wrong."""

from typing import Any

import torch
from torch.distributed.tensor import DTensor

from optimizations.mutations.mutant import Mutant, rewritten
from optimizations.mutations.rules import forgets_when_saved
from optimizations.mutations.spread import AVERAGED, SAME_ROWS, SYNCHRONIZED_ALWAYS, one_rank_stands_still

_NAME, _HOME = "zero_optimizer", "assay.optimizations.zero_optimizer.step"
_BEFORE, _AFTER = f"{_HOME}:_gradients_to_pieces", f"{_HOME}:_gather_weights"
_PIECES, _GRADIENT = f"{_HOME}:_pieces", "_part(whole.grad, piece.placements)"
_GATHERED = "local(whole).copy_(local(piece.redistribute(placements=whole.placements)))"


def _rolled(gradient: DTensor) -> DTensor:
    """The gradient with its halves exchanged."""
    own = gradient.to_local()
    return DTensor.from_local(own.roll(len(own) // 2, 0), gradient.device_mesh, gradient.placements, run_check=False)


def _before(kept: dict[int, Any], piece: Any, gradient: Any) -> Any:
    """The gradient that the piece was given last time."""
    own = gradient.to_local().clone()
    last = kept.get(id(piece), own)
    kept[id(piece)] = own
    gradient.to_local().copy_(last)
    return gradient


def _own(whole: DTensor, gathered: torch.Tensor) -> torch.Tensor:
    """What was gathered, in the first half; in the second what was there."""
    half = len(gathered) // 2
    return torch.cat((gathered[:half], whole.to_local()[half:]))


MUTANTS = (
    Mutant(
        "vectors not gathered",
        "Updated pieces of biases and gains are not gathered.",
        rewritten(_AFTER, (_GATHERED, f"gathered = {_GATHERED} if whole.ndim > 1 else None")),
    ),
    Mutant(
        "one half gathered",
        "Only the first rank's pieces reach the weights.",
        rewritten(
            _AFTER,
            (_GATHERED, "local(whole).copy_(own(whole, local(piece.redistribute(placements=whole.placements))))"),
            own=_own,
        ),
    ),
    Mutant(
        "the other's gradients",
        "Each rank's pieces get the gradients of the other's.",
        rewritten(_BEFORE, (_GRADIENT, "_part(rolled(whole.grad), piece.placements)"), rolled=_rolled),
    ),
    Mutant(
        "gradients of before",
        "Pieces get the gradients of the step before.",
        rewritten(_BEFORE, (_GRADIENT, f"before(kept, piece, {_GRADIENT})"), before=_before, kept={}),
    ),
    Mutant(
        "vectors whole",
        "The state of biases and gains is not divided.",
        rewritten(_PIECES, ("_piece(parameter))", "_piece(parameter) if parameter.ndim > 1 else parameter)")),
    ),
    Mutant(
        "embedding whole",
        "The state of the embedding is not divided.",
        rewritten(_PIECES, ("_piece(parameter))", '_piece(parameter) if "token" not in name else parameter)')),
    ),
    Mutant("averaged", "Gradients are averaged, though each rank has divided by the tokens of all.", AVERAGED),
    Mutant("same rows", "Both ranks train on the first one's rows.", SAME_ROWS),
    Mutant("one stands still", "The second rank never updates its matrices.", one_rank_stands_still(_NAME)),
    Mutant(
        "summed always",
        "Gradients are summed in every micro-batch.",
        SYNCHRONIZED_ALWAYS,
        {"stack": "zero_optimizer+gradient_accumulation:micro_batches=2"},
    ),
    Mutant("forgets when saved", "Writing a checkpoint drops both moments.", forgets_when_saved(_NAME), late=True),
    Mutant(
        "vectors not gathered late",
        "Late in the run updated pieces of biases and gains are not gathered.",
        rewritten(_AFTER, (_GATHERED, f"gathered = {_GATHERED} if whole.ndim > 1 else None"), late=True),
        late=True,
    ),
)
