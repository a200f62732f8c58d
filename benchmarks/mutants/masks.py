"""Wrong dropout: masks that repeat, a wrong rate or scale, or no dropout, mostly after the steps that are checked.

The steps that are discarded after the last one are correct, unless a mutant acts in all steps.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from assay.config import ResolvedRun
from assay.model.blocks import blocks_of
from assay.step.program import Program, Step
from mutants.mutant import EVERY, SMALL, Clock, Fault, Mutant, drawn
from mutants.seams import Pass, Rows, passes

_TENTH = (*SMALL, "model.dropout=0.1")
_FIFTH = (*SMALL, "model.dropout=0.2")
_TWO = "gradient_accumulation:micro_batches=2"
_LATE = range(4, 24)


def _dropouts(step: Step) -> list[nn.Dropout]:
    return [one for part in step.parts for one in part.modules() if isinstance(one, nn.Dropout)]


def _seeded(seed_of: Callable[[int], int]) -> Fault:
    """Draw the masks of a step from the seed that `seed_of` gives for the step."""

    def fault(program: Program, run: ResolvedRun, clock: Clock) -> Program:
        def change(step: Step, micro: Rows, tokens: int, honest: Pass) -> Tensor:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed_of(clock.step))
                return honest(step, micro, tokens)

        return passes(change)(program, run, clock)

    return fault


def _resets(step: Step, micro: Rows, tokens: int, honest: Pass) -> Tensor:
    torch.manual_seed(7)
    return honest(step, micro, tokens)


def _repeats_step_before(program: Program, run: ResolvedRun, clock: Clock) -> Program:
    state = [torch.get_rng_state()]

    def change(step: Step, micro: Rows, tokens: int, honest: Pass) -> Tensor:
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(state[0])
            return honest(step, micro, tokens)

    wrong = passes(change)(program, run, clock).gradients

    def gradients(step: Step, micro: Rows, tokens: int) -> Tensor:
        before = torch.get_rng_state()
        loss = wrong(step, micro, tokens)
        state[0] = before
        return loss

    return replace(program, gradients=gradients)


def _same_in_layers(step: Step, micro: Rows, tokens: int, honest: Pass) -> Tensor:
    state = torch.get_rng_state()
    hooks = [
        block.register_forward_pre_hook(lambda module, given: torch.set_rng_state(state))
        for block in blocks_of(step.parts)
    ]
    loss = honest(step, micro, tokens)
    for hook in hooks:
        hook.remove()
    return loss


def _same_in_micro_batches(step: Step, micro: Rows, tokens: int, honest: Pass) -> Tensor:
    state, total = torch.get_rng_state(), torch.zeros(())
    for one in micro:
        torch.set_rng_state(state)
        total += honest(step, [one], tokens)
    return total


def _rate(factor: float, step: Step, micro: Rows, tokens: int, honest: Pass) -> Tensor:
    modules = _dropouts(step)
    before = [one.p for one in modules]
    for one in modules:
        one.p *= factor
    loss = honest(step, micro, tokens)
    for one, p in zip(modules, before, strict=True):
        one.p = p
    return loss


def _with_forward(
    forward: Callable[[nn.Dropout, Tensor], Tensor], step: Step, micro: Rows, tokens: int, honest: Pass
) -> Tensor:
    modules = _dropouts(step)
    for one in modules:
        one.forward = partial(forward, one)  # type: ignore[method-assign]
    loss = honest(step, micro, tokens)
    for one in modules:
        del one.forward
    return loss


def _not_rescaled(module: nn.Dropout, x: Tensor) -> Tensor:
    return nn.functional.dropout(x, module.p, True) * (1 - module.p)


def _same_in_rows(module: nn.Dropout, x: Tensor) -> Tensor:
    return x * nn.functional.dropout(torch.ones_like(x[:1]), module.p, True)


def _whole_channels(module: nn.Dropout, x: Tensor) -> Tensor:
    return x * nn.functional.dropout(torch.ones_like(x[..., :1]), module.p, True)


def _gradient_whole(module: nn.Dropout, x: Tensor) -> Tensor:
    return x + (nn.functional.dropout(x, module.p, True) - x).detach()


def _half_of_channels(module: nn.Dropout, x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return torch.cat([nn.functional.dropout(x[..., :half], module.p, True), x[..., half:]], dim=-1)


def _embedding_spared(step: Step, micro: Rows, tokens: int, honest: Pass) -> Tensor:
    module = step.parts[0].get_submodule("embedding.dropout")
    module.eval()
    loss = honest(step, micro, tokens)
    module.train()
    return loss


def _off(step: Step, micro: Rows, tokens: int, honest: Pass) -> Tensor:
    for part in step.parts:
        part.eval()
    loss = honest(step, micro, tokens)
    for part in step.parts:
        part.train()
    return loss


def _recomputed_otherwise(step: Step, micro: Rows, tokens: int, honest: Pass) -> Tensor:
    blocks = list(blocks_of(step.parts))
    for block in blocks:
        plain = partial(type(block).__mro__[1].forward, block)
        block.forward = partial(checkpoint, plain, use_reentrant=False, preserve_rng_state=False)
    loss = honest(step, micro, tokens)
    for block in blocks:
        del block.forward
    return loss


def _row_spared(step: Step, micro: Rows, tokens: int, honest: Pass) -> Tensor:
    def forward(module: nn.Dropout, x: Tensor) -> Tensor:
        return torch.cat([x[:1], nn.functional.dropout(x[1:], module.p, True)])

    return _with_forward(forward, step, micro, tokens, honest)


MUTANTS = (
    Mutant("frozen", "All steps draw the masks of one seed.", "lion", _seeded(lambda step: 7), EVERY, 24, _TENTH),
    Mutant(
        "frozen late",
        "Steps after the fourth draw the masks of one seed.",
        "lion",
        _seeded(lambda step: 7),
        _LATE,
        24,
        _TENTH,
    ),
    Mutant(
        "two masks in turn",
        "Steps after the fourth draw one of two sets of masks.",
        "sgd",
        _seeded(lambda step: step % 2),
        range(4, 40),
        40,
        _FIFTH,
    ),
    Mutant(
        "equal at each seed",
        "Masks depend on the step only, and not on the seed of the run.",
        "fused_adamw",
        _seeded(lambda step: step),
        _LATE,
        24,
        _TENTH,
    ),
    Mutant(
        "reset every fourth",
        "The generator is reset every fourth step.",
        "foreach_adamw",
        passes(_resets),
        range(7, 48, 4),
        48,
        _TENTH,
    ),
    Mutant(
        "masks of the step before",
        "Ten steps draw the masks of the step before.",
        "lion",
        _repeats_step_before,
        drawn(10, 24, seed=21),
        24,
        _FIFTH,
    ),
    Mutant(
        "equal in layers", "All layers draw equal masks.", "fused_adamw", passes(_same_in_layers), EVERY, 24, _TENTH
    ),
    Mutant(
        "equal in layers in the middle",
        "All layers draw equal masks in eight steps.",
        "foreach_adamw",
        passes(_same_in_layers),
        drawn(8, 24, seed=22),
        24,
        _TENTH,
    ),
    Mutant(
        "equal in micro-batches",
        "Both micro-batches draw equal masks.",
        _TWO,
        passes(_same_in_micro_batches),
        EVERY,
        24,
        _TENTH,
    ),
    Mutant(
        "equal in micro-batches in the middle",
        "Both micro-batches draw equal masks in twelve steps.",
        _TWO,
        passes(_same_in_micro_batches),
        drawn(12, 32, seed=23),
        32,
        _FIFTH,
    ),
    Mutant(
        "half the rate",
        "Half as many elements are dropped.",
        "bf16_mixed",
        passes(partial(_rate, 0.5)),
        _LATE,
        24,
        _FIFTH,
    ),
    Mutant(
        "one percent more", "The rate is 0.202 and not 0.2.", "lion", passes(partial(_rate, 1.01)), _LATE, 24, _FIFTH
    ),
    Mutant(
        "not rescaled",
        "What is kept is not divided by 1 - p.",
        "muon",
        passes(partial(_with_forward, _not_rescaled)),
        drawn(9, 24, seed=24),
        24,
        _TENTH,
    ),
    Mutant("off late", "Dropout is off after the fourth step.", "sgd", passes(_off), _LATE, 24, _TENTH),
    Mutant(
        "one mask for all rows",
        "All rows of a batch have one mask.",
        "activation_checkpointing",
        passes(partial(_with_forward, _same_in_rows)),
        drawn(8, 24, seed=25),
        24,
        _TENTH,
    ),
    Mutant(
        "whole tokens",
        "A token is dropped with all its channels.",
        "bf16_mixed",
        passes(partial(_with_forward, _whole_channels)),
        drawn(8, 24, seed=26),
        24,
        _TENTH,
    ),
    Mutant(
        "backward without mask",
        "The gradient passes as if nothing had been dropped.",
        "fused_adamw",
        passes(partial(_with_forward, _gradient_whole)),
        drawn(8, 24, seed=27),
        24,
        _TENTH,
    ),
    Mutant(
        "half of the channels",
        "The later half of the channels is never dropped.",
        "muon",
        passes(partial(_with_forward, _half_of_channels)),
        _LATE,
        24,
        _FIFTH,
    ),
    Mutant("embedding spared", "The embedding is not dropped.", "lion", passes(_embedding_spared), _LATE, 24, _TENTH),
    Mutant(
        "first row spared",
        "The first row of a batch is not dropped.",
        "sgd",
        passes(_row_spared),
        drawn(16, 40, seed=28),
        40,
        _TENTH,
    ),
    Mutant(
        "recomputed with other masks",
        "The recomputation draws masks of its own.",
        "activation_checkpointing",
        passes(_recomputed_otherwise),
        drawn(8, 24, seed=29),
        24,
        _TENTH,
    ),
)
