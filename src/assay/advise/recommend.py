"""Advice on what to turn on: the fastest stack that fits, the share of each element, and the basis of the answer.

It warns of shapes that hardware dislikes: sides of matrix products that are not whole tiles. Tensor cores compute tiles
of 8 or 16 elements a side, and kernels blocks of 64 to 256. A side that is no multiple of 8 is padded or takes a slower
kernel. One that is no multiple of 64 leaves a part of its last block idle. The source is NVIDIA's Deep Learning
Performance Guide, on matrix multiplication. nanoGPT rounds GPT-2's 50,257 tokens to 50,304 for this reason. Vector
units of CPUs have 8 or 16 lanes.
"""

from collections.abc import Iterator
from dataclasses import replace

from assay.advise.advice import Advice, Choice, Counts, Part
from assay.advise.elements import Element, stack_text, with_stack
from assay.advise.evidence import deciding, reason
from assay.advise.ledgers import Positions
from assay.advise.problem import Problem, Ranking
from assay.config.model import ModelConfig
from assay.config.run import ResolvedRun
from assay.errors import UsageError
from assay.estimator.capacity import largest, peak_of
from assay.estimator.memory_fit import batch_of
from assay.estimator.timing.step_time import StepTime
from assay.optimizations.optimization import Numerics

_SLOWER = 1.15
"""Factor of a timed stack over the product of its elements' changes from which their interaction is worth a warning."""
_FASTER = 0.95
"""Factor of the recommended stack's time from which a faster one that was not timed is worth a warning."""
TILE, BLOCK = 8, 64


def advice(problem: Problem, ranking: Ranking, device: str, words: str, *, absent: bool, checked: str = "") -> Advice:
    """Return the answer to a problem by a ranking of its stacks.

    `words` are the configuration in a command, to which the techniques are added. `checked` says what decided that the
    best stack fits.
    """
    best = _certain(problem, ranking, ranking.best.stack)
    points = [_certain(problem, ranking, point.stack) for point in ranking.frontier]
    on_gpu = problem.machine.device(problem.run.device) == "cuda"
    return Advice(
        run=problem.run,
        configuration=words.partition(" ")[0],
        device=device,
        absent=absent,
        budget_bytes=problem.limits.budget_bytes,
        of=problem.limits.of,
        baseline=_certain(problem, ranking, ()),
        recommended=best,
        frontier=tuple(points),
        parts=tuple(_parts(problem, ranking)),
        different=tuple(_different(problem, ranking, best)),
        counts=_counts(problem, ranking),
        warnings=(
            *warnings(problem.run.model, on_gpu),
            *_interactions(problem, ranking),
            *_untimed(problem, ranking),
        ),
        sources=sources(problem, ranking.best.stack),
        command=f"assay train {words} --with {best.title}" if best.stack else f"assay train {words}",
        checked=checked,
        largest_batch=_largest_batch(problem, ranking.best.stack) if absent else None,
    )


def _largest_batch(problem: Problem, stack: Positions) -> int | None:
    """Return the most sequences of a step that fit with a stack, as `assay capacity` finds them."""
    limits = problem.limits
    run = problem.resolved(stack).asked()
    return largest(run, "training.batch_size", limits.budget_bytes, problem.machine, limits.of).value


def _certain(problem: Problem, ranking: Ranking, stack: Positions) -> Choice:
    found = problem.choice(stack, ranking)
    if found is None:
        raise UsageError("the configuration itself cannot be predicted, so nothing can be compared with it")
    return found


def _parts(problem: Problem, ranking: Ranking) -> Iterator[Part]:
    best, losses = ranking.best.stack, problem.limits.losses or {}
    for i in best:
        one = problem.found[i].one
        without = problem.choice(tuple(j for j in best if j != i), ranking)
        yield Part(str(problem.found[i]), without, reason(one, losses, problem.limits.loss_change))


def _different(problem: Problem, ranking: Ranking, best: Choice) -> Iterator[Choice]:
    """Yield the recommended stack with each technique that trains differently, in place of those that exclude it.

    What does not fit into the budget is left out.
    """
    recommended = problem.named(ranking.best.stack)
    for other in problem.different:
        kept = tuple(one for one in recommended if not one.one.claims & other.one.claims)
        stack = tuple(sorted((*kept, other), key=lambda one: one.order))
        found = _untimed_step(problem, stack)
        if found is not None:
            alone, need, run = found
            seconds, margin = alone.seconds, alone.margin
            if margin is None:  # a roofline, which the timed stacks correct
                seconds *= best.seconds / problem.roofline[ranking.best.stack]
                margin = problem.roofline_margin
            if need > problem.limits.budget_bytes:
                continue
            changed = replace(best, stack=tuple(map(str, stack)), seconds=seconds, need_bytes=need, fits=True)
            changed = replace(changed, timed=False, tokens=run.tokens_per_step, batch=batch_of(run))
            yield replace(changed, margin=margin, numerics=Numerics.DIFFERENT_TRAINING)


def _untimed_step(problem: Problem, stack: tuple[Element, ...]) -> tuple[StepTime, int, ResolvedRun] | None:
    """Return predicted time, need and run of a stack; None if it cannot run or be predicted."""
    from assay.estimator.estimate import estimate

    run = with_stack(problem.run, stack)
    try:
        found = estimate(run, problem.machine)
        need, time = peak_of(found, problem.limits.of), found.untimed
    except UsageError:
        return None
    return None if time is None else (time, need, run)


def sources(problem: Problem, stack: Positions) -> tuple[str, ...]:
    """Return the source of each measured change of the loss that speaks for a stack."""
    losses, limit = problem.limits.losses or {}, problem.limits.loss_change
    found = ((each.one.name(), deciding(each.one, losses, limit)) for each in problem.named(stack))
    return tuple(f"{name}: {one.source}" for name, one in found if one is not None)


def _counts(problem: Problem, ranking: Ranking) -> Counts:
    idle = problem.ledgers.idle
    of_interest = (*problem.named(ranking.best.stack), *problem.named(tuple(sorted(idle))))
    gains = ((one, one.one.measured_gain(problem.run, problem.machine)) for one in of_interest)
    return Counts(
        candidates=problem.candidates,
        idle=tuple(str(problem.found[i]) for i in sorted(idle)),
        measured=tuple(f"{one}: {gain}" for one, gain in gains if gain),
        unseen=tuple(f"{one}: {one.one.unseen}" for one in problem.unseen),
        unadvised=tuple(f"{one}: {why}" for one, why in problem.unadvised),
        refused=tuple(map(str, problem.refused)),
        unearned=tuple(str(problem.found[i]) for i in ranking.unearned),
        timed=len(ranking.timed),
        under_load=ranking.under_load,
        replayed=problem.replayed,
    )


def _interactions(problem: Problem, ranking: Ranking) -> Iterator[str]:
    """Yield a sentence on each timed stack that is far slower than its elements alone would make it."""
    for stack in sorted(ranking.timed, key=lambda one: (len(one), one)):
        singles = [(i,) for i in stack]
        if len(stack) < 2 or not ranking.timed.issuperset([(), *singles]):
            continue
        alone = ranking.seconds[()]
        product = alone
        for single in singles:
            product *= ranking.seconds[single] / alone
        if ranking.seconds[stack] > _SLOWER * product:
            names = " and ".join(str(problem.found[i]) for i in stack)
            times = ranking.seconds[stack] / product
            longer = f"{times:.1f} × as long as" if times >= 2 else f"{times - 1:.0%} longer than"
            yield f"{names} hinder each other here: together they take {longer} each alone suggests"


def _untimed(problem: Problem, ranking: Ranking) -> Iterator[str]:
    """Yield a sentence on the fastest stack if it was not timed, and the recommended one is noticeably slower."""
    fastest, best = ranking.frontier[0], ranking.best
    if best.stack in ranking.timed and fastest.seconds < _FASTER * best.seconds:
        names = stack_text(problem.named(fastest.stack))
        less = 1 - fastest.seconds / best.seconds
        yield f"{names} may take {less:.0%} less time, but was not timed; give --calibrate more seconds"


def warnings(model: ModelConfig, on_gpu: bool) -> Iterator[str]:
    """Yield a sentence for each side of a product that is not a whole number of tiles, or on a GPU of blocks."""
    sides = {"model.n_embd": model.n_embd, "the width of a head": model.head_dim, "the MLP's width": model.hidden}
    for name, width in sides.items():
        multiple = BLOCK if on_gpu and width > BLOCK else TILE
        if width % multiple:
            yield (
                f"{name} is {width}, no multiple of {multiple}, so tiles of products are partly idle; "
                f"{_up(width, multiple)} takes hardly longer"
            )
    if model.vocabulary % BLOCK:
        more = _up(model.vocabulary, BLOCK)
        yield (
            f"the vocabulary has {model.vocabulary:,} rows, no multiple of {BLOCK}; with model.vocab_size={more} the "
            "logits are whole blocks"
        )


def _up(width: int, multiple: int) -> int:
    return -(-width // multiple) * multiple
