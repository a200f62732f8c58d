"""Full sharding, wrong."""

from optimizations.mutations.mutant import Mutant, rewritten
from optimizations.mutations.rules import forgets_when_saved, only
from optimizations.mutations.spread import (
    AVERAGED,
    CLIPPED,
    LOSS_NOT_SUMMED,
    NORM_OF_PIECES,
    SAME_ROWS,
    SYNCHRONIZED_ALWAYS,
    TOKENS_OF_ONE,
    not_summed,
)

_NAME, _SHARDS = "fully_sharded", "assay.parallel.fsdp:shards"
_MIXED = {"stack": "fully_sharded:mixed_precision=true"}

MUTANTS = (
    Mutant("averaged", "Gradients are averaged, though each rank has divided by the tokens of all.", AVERAGED),
    Mutant("same rows", "Both ranks train on the first one's rows.", SAME_ROWS),
    Mutant("loss not summed", "The reported loss is that of one rank's rows.", LOSS_NOT_SUMMED),
    Mutant("tokens of one", "The loss of gradients is divided by one rank's tokens.", TOKENS_OF_ONE),
    Mutant("norm of pieces", "Each rank clips by the norm of its own shards.", NORM_OF_PIECES, CLIPPED),
    Mutant("norm left out", "The last norm is neither sharded nor summed.", not_summed("head.norm")),
    Mutant(
        "weights stay",
        "Gathered weights stay until backward is done.",
        rewritten(_SHARDS, ("reshard_after_forward=reshard", "reshard_after_forward=False")),
    ),
    Mutant(
        "sums in 16 bits",
        "Gradients are summed in bfloat16.",
        rewritten(_SHARDS, ("reduce_dtype=torch.float32", "reduce_dtype=torch.bfloat16")),
        _MIXED,
    ),
    Mutant(
        "loss in 16 bits",
        "The loss is computed in bfloat16.",
        rewritten(_SHARDS, ("lift_logits(part)", "pass")),
        _MIXED,
    ),
    Mutant("every second weight", "Every second weight is never updated.", only(_NAME, lambda n, name: n % 2 == 0)),
    Mutant(
        "summed always",
        "Gradients are summed in every micro-batch.",
        SYNCHRONIZED_ALWAYS,
        {"stack": "fully_sharded+gradient_accumulation:micro_batches=2"},
    ),
    Mutant("forgets when saved", "Writing a checkpoint drops both moments.", forgets_when_saved(_NAME), late=True),
)
