"""Pipeline parallelism, wrong."""

from assay.optimizations.pipeline_parallel.step import SCHEDULES
from optimizations.mutations.mutant import Mutant, replaced, rewritten
from optimizations.mutations.spread import CLIPPED

_RUN, _GRADIENTS = (
    "assay.optimizations.pipeline_parallel.step:_Line._run",
    "assay.optimizations.pipeline_parallel.step:_Line.gradients",
)
_SCHEDULE, _CAT = "assay.optimizations.pipeline_parallel.step:_Line._schedule", "torch.cat(side) for side"
_NORM, _TIED = (
    "assay.optimizations.pipeline_parallel.step:gradient_norm",
    "assay.optimizations.pipeline_parallel.step:_TiedGradients.__call__",
)

MUTANTS = (
    Mutant(
        "the first again and again",
        "Every micro-batch is the first one.",
        rewritten(_RUN, (_CAT, "torch.cat(side[:1] * len(side)) for side")),
    ),
    Mutant(
        "last one dropped",
        "The last micro-batch is the one before again.",
        rewritten(_RUN, (_CAT, "torch.cat((*side[:-1], side[-2])) for side")),
    ),
    Mutant(
        "divided by too few",
        "Each loss is divided by the tokens of its micro-batch.",
        rewritten(
            _GRADIENTS,
            ("self.tokens, self.rows = tokens,", "self.tokens, self.rows = tokens // len(micro_batches),"),
            ("for one in losses) * tokens", "for one in losses) * self.tokens"),
        ),
    ),
    Mutant(
        "averaged",
        "Gradients are divided by the number of micro-batches once more.",
        rewritten(_SCHEDULE, ("scale_grads=False", "scale_grads=True")),
    ),
    Mutant(
        "GPipe",
        "All forwards come before all backwards, where 1F1B was asked for.",
        replaced("assay.optimizations.pipeline_parallel.step:SCHEDULES", {**SCHEDULES, "1f1b": "GPipe"}),
    ),
    Mutant(
        "1F1B",
        "Forwards and backwards take turns, where GPipe was asked for.",
        replaced("assay.optimizations.pipeline_parallel.step:SCHEDULES", {**SCHEDULES, "gpipe": "1F1B"}),
        {"stack": "pipeline_parallel:schedule=gpipe"},
    ),
    Mutant(
        "ties cut",
        "The two copies of a tied weight keep gradients of their own.",
        replaced(_TIED, lambda self, step: None),
    ),
    Mutant(
        "tied once",
        "Both copies of a tied weight get the sum, and it is halved.",
        rewritten(
            _TIED,
            (
                "dist.all_reduce(gradient, group=self._group)",
                "dist.all_reduce(gradient, group=self._group); gradient.div_(2)",
            ),
        ),
    ),
    Mutant(
        "norm of a stage",
        "Each stage clips by its own norm.",
        rewritten(_NORM, ('    dist.all_reduce(total, group=mesh.get_group("pp"))', "    pass")),
        CLIPPED,
    ),
    Mutant(
        "tied weight twice",
        "The norm counts a tied weight on both of its stages.",
        replaced(
            "assay.parallel.rank_sums:_own",
            lambda step: (p.grad for _, p in step.named_parameters() if p.grad is not None),
        ),
        CLIPPED,
    ),
    Mutant(
        "loss of three",
        "The reported loss leaves the last micro-batch out.",
        rewritten(_GRADIENTS, ("for one in losses)", "for one in losses[:-1])")),
    ),
    Mutant(
        "ties cut late",
        "Late in the run the copies of a tied weight keep gradients of their own.",
        replaced(_TIED, lambda self, step: None, late=True),
        late=True,
    ),
)
