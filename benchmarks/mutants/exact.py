"""Wrong gradients under techniques that promise exact or reassociated ones, or that change the optimizer only.

They act in all steps, in the first eight, or in the last eight and all that are discarded after these.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from assay.config import ResolvedRun
from assay.model.loss import NOT_COUNTED
from assay.step.program import Program, Step
from assay.training.gradients import summed_loss
from mutants.mutant import SMALL, Clock, Mutant, last
from mutants.seams import Pass, Rows, gradients, passes, scaled, unseen

_FIRST = range(8)
_APART = (*SMALL, "model.tie_embeddings=false")
_BIASED = (*SMALL, "model.bias=true")
_HALF = "gradient_accumulation:micro_batches=2"
_UP, _TOKENS = "blocks.1.mlp.up.weight", "embedding.token.weight"

Weights = dict[str, nn.Parameter]


def _of(weights: Weights, name: str) -> Tensor:
    gradient = weights[name].grad
    assert gradient is not None
    return gradient


def _on(name: str, change: Callable[[Tensor], object]) -> Callable[[Weights], None]:
    """Call `change` with the gradient of one weight."""
    return lambda weights: (change(_of(weights, name)), None)[1]


def _missing(weights: Weights) -> None:
    weights[_UP].grad = None


def _signs(weights: Weights) -> None:
    for one in weights.values():
        if one.grad is not None:
            one.grad.neg_()


def _row_clipped(gradient: Tensor) -> None:
    largest = gradient.norm(dim=1).argmax()
    gradient[largest] *= 0.5


def _queries_and_keys(gradient: Tensor) -> None:
    heads = gradient.view(-1, 3, 16, gradient.shape[1])
    heads[:, :2] = heads[:, :2].flip(1)


def _other_micro_batch(step: Step, micro: Rows, tokens: int, honest: Pass) -> Tensor:
    honest(step, [micro[0], micro[0]], tokens)
    with torch.no_grad():
        return sum((summed_loss(step, one) for one in micro), torch.zeros(()))


def _last_position_lost(step: Step, micro: Rows, tokens: int, honest: Pass) -> Tensor:
    def cut(targets: Tensor) -> Tensor:
        shorter = targets.clone()
        shorter[:, -1] = NOT_COUNTED
        return shorter

    honest(step, [(ids, cut(targets)) for ids, targets in micro], tokens)
    with torch.no_grad():
        return sum((summed_loss(step, one) for one in micro), torch.zeros(()))


def _stopped_at(program: Program, run: ResolvedRun, clock: Clock) -> Program:
    """Cut the residual stream before the last block, so that earlier weights learn through its branch only."""
    block = program.parts[0].get_submodule("blocks.1")
    honest = block.forward

    def forward(x: Tensor) -> Tensor:
        return honest(x) + 0.1 * (x.detach() - x) if clock.due and x.requires_grad else honest(x)

    block.forward = forward
    return program


def _planted_after_norm(change: Callable[[Weights], None]) -> Callable[[Program, ResolvedRun, Clock], Program]:
    """Change gradients once their norm is known, so that the norm and the check for finite values see nothing."""

    def fault(program: Program, run: ResolvedRun, clock: Clock) -> Program:
        honest = program.gradient_norm

        def norm(step: Step) -> Tensor:
            found = honest(step)
            if clock.due:
                with torch.no_grad():
                    change(dict(step.named_parameters()))
            return found

        return replace(program, gradient_norm=norm)

    return fault


def _nan_in_unused_row(weights: Weights) -> None:
    # The byte 255 is in no UTF-8 text.
    _of(weights, _TOKENS)[255] = torch.nan


def _infinite_in_unused_row(weights: Weights) -> None:
    _of(weights, _TOKENS)[255] = torch.inf


def _every_scaled(factor: float) -> Callable[[Weights], None]:
    return lambda weights: [one.grad.mul_(factor) for one in weights.values() if one.grad is not None].clear()


MUTANTS = (
    Mutant(
        "MLP at first",
        "Gradients of the MLPs are 1.5 times too large at first.",
        "fused_adamw",
        scaled(".mlp.", 1.5),
        _FIRST,
    ),
    Mutant(
        "MLP at last",
        "Gradients of the MLPs are 1.5 times too large at last.",
        "foreach_adamw",
        scaled(".mlp.", 1.5),
        last(8),
    ),
    Mutant("one is missing", "One weight has no gradient.", "lion", gradients(_missing)),
    Mutant("one is missing at last", "One weight has no gradient at last.", "muon", gradients(_missing), last(8)),
    Mutant(
        "not a number",
        "A row of the embedding that no token uses has NaN for its gradient after the norm is taken.",
        "fused_adamw",
        _planted_after_norm(_nan_in_unused_row),
        settings=_APART,
    ),
    Mutant(
        "infinite",
        "A row of the embedding that no token uses has an infinite gradient after the norm is taken.",
        "lion",
        _planted_after_norm(_infinite_in_unused_row),
        settings=_APART,
    ),
    Mutant("ascends", "Lion climbs.", "lion", gradients(_signs)),
    Mutant("ascends at first", "Lion climbs at first.", "lion", gradients(_signs), _FIRST),
    Mutant("ascends at last", "SGD climbs at last.", "sgd", gradients(_signs), last(8)),
    Mutant(
        "head untrained",
        "The head has gradients of zero.",
        "foreach_adamw",
        scaled("head.projection", 0.0),
        settings=_APART,
    ),
    Mutant(
        "head untrained at last",
        "The head has gradients of zero at last.",
        "deferred_metrics:every=4",
        scaled("head.projection", 0.0),
        last(8),
        settings=_APART,
    ),
    Mutant(
        "row halved",
        "The largest row of the embedding's gradient is halved.",
        "sgd",
        gradients(_on(_TOKENS, _row_clipped)),
    ),
    Mutant(
        "first micro-batch twice",
        "Both micro-batches have the gradients of the first.",
        _HALF,
        passes(_other_micro_batch),
    ),
    Mutant(
        "first micro-batch twice at last",
        "Both micro-batches have the gradients of the first at last.",
        _HALF,
        passes(_other_micro_batch),
        last(8),
    ),
    Mutant(
        "one bias flips",
        "The gradient of one bias has the opposite sign.",
        "muon",
        scaled("blocks.0.mlp.down.bias", -1.0),
        _FIRST,
        settings=_BIASED,
    ),
    Mutant(
        "recomputed block smaller",
        "Gradients of one block are 2 % too small.",
        "activation_checkpointing",
        scaled("blocks.0.", 0.98),
    ),
    Mutant(
        "tied gradients averaged",
        "The two gradients of the tied weight are averaged.",
        "weight_tying",
        scaled(_TOKENS, 0.5),
        settings=_APART,
    ),
    Mutant(
        "queries and keys exchanged",
        "Queries have the gradients of keys, and keys those of queries.",
        "sdpa_attention",
        gradients(_on("blocks.0.attention.qkv.weight", _queries_and_keys)),
        last(8),
    ),
    Mutant("all one percent larger", "All gradients are 1 % too large.", "fused_adamw", gradients(_every_scaled(1.01))),
    Mutant(
        "lossy three percent larger",
        "All gradients are 3 % too large.",
        "bf16_mixed",
        gradients(_every_scaled(1.03)),
        last(8),
    ),
    Mutant(
        "last position lost",
        "The last target of each row has a loss and no gradient.",
        "deferred_metrics",
        passes(_last_position_lost),
        _FIRST,
    ),
    Mutant(
        "stream cut",
        "A tenth of the gradient is lost at the last block.",
        "activation_checkpointing",
        _stopped_at,
        last(8),
    ),
    Mutant(
        "MLP at first unseen",
        "Gradients of the MLPs are 1.5 times too large at first, and no trace sees it.",
        "activation_checkpointing",
        unseen(scaled(".mlp.", 1.5)),
        _FIRST,
    ),
    Mutant(
        "ascends at first unseen",
        "Lion climbs at first, and no trace sees it.",
        "lion",
        unseen(gradients(_signs)),
        _FIRST,
    ),
    Mutant(
        "block smaller at first unseen",
        "Gradients of one block are 2 % too small at first, and no trace sees it.",
        "fused_adamw",
        unseen(scaled("blocks.0.", 0.98)),
        _FIRST,
    ),
    Mutant(
        "head untrained at first unseen",
        "The head has gradients of zero at first, and no trace sees it.",
        "deferred_metrics:every=4",
        unseen(scaled("head.projection", 0.0)),
        _FIRST,
        settings=_APART,
    ),
    Mutant(
        "lossy three percent larger unseen",
        "All gradients are 3 % too large, and no trace sees it.",
        "bf16_mixed",
        unseen(gradients(_every_scaled(1.03))),
    ),
)
