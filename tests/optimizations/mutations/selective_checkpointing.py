"""Selective checkpointing, wrong."""

from typing import Any

from torch.utils.checkpoint import checkpoint

from assay.optimizations.selective_checkpointing import CONTRACTIONS
from optimizations.mutations.mutant import Mutant, replaced, rewritten

_HOME = "assay.optimizations.selective_checkpointing"
_APPLY = f"{_HOME}:SelectiveCheckpointing.apply"
_CHOSEN = 'cores if self.policy == "attention" else blocks'
_MATMULS = "selective_checkpointing:policy=matmuls"


def _plain(forward: Any, *given: Any, **settings: Any) -> Any:
    """A checkpoint that keeps all."""
    return forward(*given)


def _without_policy(forward: Any, *given: Any, **settings: Any) -> Any:
    """A checkpoint that keeps nothing but its input."""
    return checkpoint(forward, *given, use_reentrant=False, preserve_rng_state=settings["preserve_rng_state"])


MUTANTS = (
    Mutant(
        "other noise",
        "Recomputation draws other dropout masks than the forward did.",
        rewritten(_APPLY, ('"preserve_rng_state": run.model.dropout > 0', '"preserve_rng_state": False')),
        {"model": {"dropout": 0.1}},
    ),
    Mutant(
        "other noise of blocks",
        "Where products are kept, recomputation draws other dropout masks than the forward did.",
        rewritten(_APPLY, ('"preserve_rng_state": run.model.dropout > 0', '"preserve_rng_state": False')),
        {"model": {"dropout": 0.1}, "stack": _MATMULS},
    ),
    Mutant(
        "first core only",
        "Only the first block's attention runs again.",
        rewritten(_APPLY, (_CHOSEN, f"({_CHOSEN})[:1]")),
    ),
    Mutant(
        "last block forgotten",
        "The last block keeps all.",
        rewritten(_APPLY, (_CHOSEN, f"({_CHOSEN})[:-1]")),
        {"stack": _MATMULS},
    ),
    Mutant(
        "keeps probabilities",
        "The results of softmax are kept, too.",
        replaced(f"{_HOME}:CONTRACTIONS", (*CONTRACTIONS, "_softmax")),
        {"stack": _MATMULS},
    ),
    Mutant(
        "projections run again",
        "Products with a bias run again.",
        replaced(f"{_HOME}:CONTRACTIONS", tuple(one for one in CONTRACTIONS if one != "addmm")),
        {"stack": _MATMULS},
    ),
    Mutant(
        "whole blocks",
        "The whole block runs again in the place of its attention.",
        rewritten(_APPLY, (_CHOSEN, "blocks")),
    ),
    Mutant(
        "no policy",
        "The policy is not passed on, so that every product runs twice.",
        replaced("assay.step.recomputed:checkpoint", _without_policy),
        {"stack": _MATMULS},
    ),
    Mutant(
        "until late",
        "Late in the run everything is kept.",
        replaced("assay.step.recomputed:checkpoint", _plain, late=True),
        late=True,
    ),
)
