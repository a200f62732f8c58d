"""Data parallelism, wrong."""

from optimizations.mutations.mutant import Mutant
from optimizations.mutations.spread import (
    AVERAGED,
    LOSS_NOT_SUMMED,
    NOT_SYNCHRONIZED,
    SAME_ROWS,
    TOKENS_OF_ONE,
    not_summed,
    one_rank_stands_still,
)

_NAME = "data_parallel"

MUTANTS = (
    Mutant("averaged", "Gradients are averaged, though each rank has divided by the tokens of all.", AVERAGED),
    Mutant("same rows", "Both ranks train on the first one's rows.", SAME_ROWS),
    Mutant("loss not summed", "The reported loss is that of one rank's rows.", LOSS_NOT_SUMMED),
    Mutant("tokens of one", "The loss of gradients is divided by one rank's tokens.", TOKENS_OF_ONE),
    Mutant("norm left out", "The last norm's gradient is not summed.", not_summed("head.norm")),
    Mutant("positions left out", "The positions' gradient is not summed.", not_summed("position")),
    Mutant("one stands still", "The second rank never updates its matrices.", one_rank_stands_still(_NAME)),
    Mutant(
        "last micro-batch alone",
        "The last micro-batch's gradients are not summed.",
        NOT_SYNCHRONIZED,
        {"stack": "data_parallel+gradient_accumulation:micro_batches=2"},
    ),
)
