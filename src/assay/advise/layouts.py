"""Layouts of a step over absent GPUs, and the fastest one whose fullest rank stays within a budget.

A candidate is a mesh of all GPUs, a kind of data parallelism, a number of micro-batches, and a stack of one device. Its
time is that of its plan (`estimator.projection`), and so is its memory. Replicas have the memory of the ledger of a
rank. All candidates are planned, and ledgers are made where a bound cannot decide.

The stacks are those that no other beats in both time and memory in the search on one device. That search has only
techniques that a plan expresses, and a rank's share of the batch. Plans do not choose among kernels: they leave out
memory traffic, so they would prefer explicit attention to a fused kernel.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby, product
from math import prod
from typing import NamedTuple, TypeVar

from assay.advise.elements import Stack
from assay.advise.ledgers import Positions
from assay.advise.placed import LayoutAdvice, Placed, Replicated, replicate, step_time
from assay.advise.problem import Limits, Problem
from assay.advise.recommend import sources, warnings
from assay.advise.search import EQUAL, NOTICEABLE, Bounds, Point, frontier
from assay.config.mesh import ONE_DEVICE, Mesh
from assay.config.run import ResolvedRun, Spec
from assay.cost.mesh_layout import Layout
from assay.errors import UsageError
from assay.estimator.projection import is_planned, project
from assay.hardware import Machine
from assay.hardware.cluster import Cluster
from assay.optimizations import Optimization, optimizations_of, resolve_run
from assay.units import format_bytes

_REPLICAS = (
    Spec(name="data_parallel"),
    Spec(name="zero_optimizer"),
    Spec(name="fully_sharded", fields={"reshard": False}),
    Spec(name="fully_sharded"),
)
"""Kinds of data parallelism, from the one that sends least."""
_NEARLY = 1.25
"""Factor of a budget for stacks whose sharded need is guessed by that of another one."""
_UNLIMITED = 2**62
"""Bytes that any stack stays within, so that the search on one device answers how memory is traded for time."""
_RUNNERS_UP = 5
AnyLayout = TypeVar("AnyLayout", Placed, Replicated)
_Found = tuple[Positions, Replicated]


def layout_advice(run: ResolvedRun, machine: Machine, cluster: Cluster, limits: Limits, words: str) -> LayoutAdvice:
    """Return the answer for a run on a cluster; `machine` has one of its devices, with rates.

    `words` are the configuration in a command. Raises `UsageError` if no layout can be planned. If none fits, it has
    the smallest memory that was found.
    """
    if not is_planned(run.model):
        return _by_ledgers(_Asked(run, machine, cluster, limits, words))
    problem, stacks = on_one_device(run, machine, cluster, limits)
    found = layouts(run, cluster, [problem.named(stack) for stack in stacks])
    ordered = found.ordered(_undivided(run, cluster))
    first = best(ordered, limits.budget_bytes)
    return LayoutAdvice(
        run=run,
        cluster=cluster,
        budget_bytes=limits.budget_bytes,
        recommended=first,
        step_time=step_time(first, run, machine),
        configuration=words.partition(" ")[0],
        frontier=pareto(ordered, limits.budget_bytes),
        runners_up=runners_up(ordered, first, limits.budget_bytes),
        candidates=len(found.placed),
        refused=len(found.refused),
        lossy=tuple(map(str, problem.refused)),
        unplanned=tuple(dict.fromkeys(one.one.name() for one in problem.kept_out if one.one.cuts() == 1)),
        warnings=(*warnings(run.model, on_gpu=True), *_precision(first)),
        sources=sources(problem, stacks[first.place]),
        words=words,
    )


class _Asked(NamedTuple):
    """A question on layouts."""

    run: ResolvedRun
    machine: Machine
    cluster: Cluster
    limits: Limits
    words: str


def _by_ledgers(asked: _Asked) -> LayoutAdvice:
    """Return the fastest kind of data parallelism whose rank fits, for a model that no plan covers."""
    run, machine, cluster, limits, words = asked
    undivided = _undivided(run, cluster)
    if undivided:
        raise UsageError(undivided)
    problem, budget = _of_share(run, machine, cluster, limits, _able(run, cluster)), limits.budget_bytes
    groups = list(_by_optimizer(problem))
    found = [one for kind in _REPLICAS for points in groups for one in _of_kind(problem, kind, points, asked)]
    if not found:
        replicate(run, machine, cluster, _REPLICAS[-1], ())  # raises the reason
    fitting = front_of(one for _, one in found if one.need_bytes <= budget)
    if not fitting:
        least = min((one for _, one in found), key=lambda one: one.need_bytes)
        raise UsageError(
            f"nothing fits into {format_bytes(budget)} by data parallelism alone, without a plan; {least.title} needs "
            f"{format_bytes(least.need_bytes)} on each GPU"
        )
    first = fitting[0]
    stack = next(stack for stack, one in found if one is first)
    return LayoutAdvice(
        run=run,
        cluster=cluster,
        budget_bytes=budget,
        recommended=first,
        step_time=first.time,
        configuration=words.partition(" ")[0],
        frontier=tuple(fitting),
        runners_up=(),
        candidates=len(found),
        refused=0,
        lossy=tuple(map(str, problem.refused)),
        unplanned=tuple(dict.fromkeys(one.one.name() for one in problem.kept_out if one.one.cuts() == 1)),
        warnings=tuple(warnings(run.model, on_gpu=True)),
        sources=sources(problem, stack),
        words=words,
        planned=False,
    )


def _of_kind(problem: Problem, kind: Spec, points: Sequence[Point], asked: _Asked) -> Iterator[_Found]:
    """Yield stacks of one optimizer with a kind of data parallelism: the smallest, then those that may fit.

    What sharding spares depends on the optimizer. So what it spares the smallest stack, it spares others nearly as
    well, and the ledger of a rank decides on each.
    """
    run, machine, cluster, limits, _ = asked
    *larger, smallest = points
    with suppress(UsageError):
        least = replicate(run, machine, cluster, kind, problem.named(smallest.stack))
        yield smallest.stack, least
        within = _NEARLY * limits.budget_bytes + smallest.need_bytes - least.need_bytes
        for point in larger:
            if point.need_bytes <= within:
                yield point.stack, replicate(run, machine, cluster, kind, problem.named(point.stack))


def _by_optimizer(problem: Problem) -> Iterator[list[Point]]:
    """Yield the stacks of each optimizer that no other one of it beats on one device in time and memory."""
    times: dict[tuple[int, ...], dict[Positions, float]] = {}
    for stack, seconds in problem.roofline.items():
        optimizer = tuple(i for i in stack if "optimizer" in problem.found[i].one.claims)
        times.setdefault(optimizer, {})[stack] = seconds
    for each in times.values():
        if points := frontier(each, problem.bounds, _UNLIMITED):
            yield points


def _undivided(run: ResolvedRun, cluster: Cluster) -> str:
    """Return a sentence if the sequences of a step cannot be divided among all GPUs; else empty."""
    rows, size = run.sequences_per_step, cluster.size
    if rows % size == 0:
        return ""
    more = -(-rows // size) * size * run.batch_divisor
    sequences = "1 sequence" if rows == 1 else f"{rows:,} sequences"
    return f"a step has {sequences}, and {size} GPUs need a multiple of {size}: training.batch_size={more}"


def _precision(first: Placed) -> Iterator[str]:
    """Yield a sentence if the recommended techniques compute in 32 bits, which plans do not cover."""
    if not any("16-bit products" in one.bears() for one in optimizations_of(first.projection.run)):
        yield (
            "plans assume 16-bit products, and no technique that computes so is part of the answer; without one a step "
            "takes more time and memory than is planned"
        )


@dataclass(frozen=True)
class Layouts:
    """Candidates of a run on a cluster."""

    placed: tuple[Placed, ...]
    refused: tuple[str, ...]
    """Reason of each combination that a check refuses; it is no candidate."""

    def ordered(self, undivided: str = "") -> list[Placed]:
        """Return all candidates, the fastest first. Raises `UsageError` if there are none.

        The reason is the batch if that is `undivided`, else the last refusal.
        """
        if not self.placed:
            reasons = [undivided or one for one in self.refused[-1:]]
            why = f": {reasons[0]}" if reasons else "; choose a number that divides batch, heads or layers"
            raise UsageError(f"no layout of these GPUs can be planned{why}")
        return sorted(self.placed, key=lambda one: (one.seconds, one.least_bytes, one.simplicity))


def best(ordered: Sequence[Placed], budget_bytes: int) -> Placed:
    """Return the simplest of those that are as fast as the first that fits. Raises `UsageError` if nothing fits."""
    fastest = next((one.seconds for one in ordered if one.fits(budget_bytes)), None)
    if fastest is None:
        least = _smallest(ordered)
        raise UsageError(
            f"nothing fits into {format_bytes(budget_bytes)}; the smallest memory of a fullest rank is "
            f"{least.need_bytes} bytes ({format_bytes(least.need_bytes)}), on {least.mesh} with {least.title}"
        )
    near = sorted((one for one in ordered if one.seconds <= EQUAL * fastest), key=lambda one: one.simplicity)
    # A ledger takes a while, so those of less simple ones are not made.
    groups = ([one for one in group if one.fits(budget_bytes)] for _, group in groupby(near, lambda it: it.simplicity))
    return min(next(group for group in groups if group), key=lambda one: one.preference)


def _smallest(placed: Sequence[Placed]) -> Placed:
    """Return the candidate that needs least; bounds spare the ledgers of most."""
    first, *others = sorted(placed, key=lambda one: one.least_bytes)
    for one in others:
        if one.least_bytes > first.need_bytes:
            break
        first = min(first, one, key=lambda it: (it.need_bytes, it.preference))
    return first


def pareto(ordered: Sequence[Placed], budget_bytes: int) -> tuple[Placed, ...]:
    """Return the fastest one that fits, and each that needs noticeably less memory than all faster ones."""
    times: dict[Positions, float] = {(i,): one.seconds for i, one in enumerate(ordered)}
    bounds = Bounds((lambda key: ordered[key[0]].least_bytes,), lambda key, limit: ordered[key[0]].need_bytes)
    return tuple(front_of([ordered[point.stack[0]] for point in frontier(times, bounds, budget_bytes)]))


def front_of(found: Iterable[AnyLayout]) -> list[AnyLayout]:
    """Return what no other beats in time and memory, the fastest first."""
    kept: list[AnyLayout] = []
    for one in sorted(found, key=lambda it: (it.seconds, it.need_bytes)):
        if not kept or one.need_bytes <= NOTICEABLE * kept[-1].need_bytes:
            kept.append(one)
    return kept


def runners_up(ordered: Sequence[Placed], first: Placed, budget_bytes: int) -> tuple[Placed, ...]:
    """Return the fastest one of each other mesh that fits, the fastest first."""
    fastest: dict[Mesh, Placed] = {}
    for one in ordered:
        if one.mesh != first.mesh and one.mesh not in fastest and one.fits(budget_bytes):
            fastest[one.mesh] = one
    return tuple(fastest.values())[:_RUNNERS_UP]


def layouts(run: ResolvedRun, cluster: Cluster, stacks: Sequence[Stack]) -> Layouts:
    """Plan every mesh, division of the batch and stack. `stacks` are in the order of preference."""
    found, refused = [], []
    for mesh in meshes(run, cluster):
        for division, (place, stack) in product(divisions(run, mesh), enumerate(stacks)):
            added = (*division, *(each.spec for each in stack))
            asked = run.model_copy(update={"optimizations": (*run.optimizations, *added)})
            try:
                found.append(Placed(tuple(map(str, added)), place, project(asked, cluster)))
            except UsageError as reason:
                refused.append(str(reason))
    return Layouts(tuple(found), tuple(refused))


def meshes(run: ResolvedRun, cluster: Cluster) -> Iterator[Mesh]:
    """Yield each mesh of all GPUs that divides heads and batch, with tensor groups no larger than a node."""
    size, model = cluster.size, run.model
    divisors = [degree for degree in range(1, size + 1) if size % degree == 0]
    for tp, pp in product(divisors, repeat=2):
        if tp > cluster.gpus_per_node or model.n_head % tp or pp > model.n_layer or size % (tp * pp):
            continue
        mesh = Mesh(pp=pp, dp=size // (tp * pp), tp=tp)
        if run.sequences_per_step % mesh.dp == 0:
            yield mesh


def divisions(run: ResolvedRun, mesh: Mesh) -> Iterator[tuple[Spec, ...]]:
    """Yield the techniques that divide a step so: each kind of data parallelism with 1, 2, 4, … micro-batches."""
    tensor = () if mesh.tp == 1 else (Spec(name="tensor_parallel", fields={"degree": mesh.tp}),)
    rows = run.sequences_per_step // mesh.dp
    for kind in [(one,) for one in _REPLICAS] if mesh.dp > 1 else [()]:
        for parts in (2**power for power in range(rows.bit_length()) if rows % 2**power == 0):
            yield *kind, *tensor, *_cut(mesh.pp, parts)


def _cut(stages: int, parts: int) -> tuple[Spec, ...]:
    if stages > 1:
        return (Spec(name="pipeline_parallel", fields={"degree": stages, "micro_batches": parts}),)
    return () if parts == 1 else (Spec(name="gradient_accumulation", fields={"micro_batches": parts}),)


def on_one_device(
    run: ResolvedRun, machine: Machine, cluster: Cluster, limits: Limits
) -> tuple[Problem, list[Positions]]:
    """Return the search on one device of the cluster, and its stacks from the best to the one that needs least.

    Raises `UsageError` if the run itself cannot be predicted there.
    """
    able = _able(run, cluster)

    def expressed(one: Optimization) -> bool:
        try:
            one.lay_out(Layout(ONE_DEVICE, 1))
        except UsageError:
            return False
        return able(one)

    problem = _of_share(run, machine, cluster, limits, expressed)
    ranking = problem.rank(machine)
    smaller = [point.stack for point in ranking.frontier if point.need_bytes < ranking.best.need_bytes]
    return problem, [ranking.best.stack, *smaller]


def _able(run: ResolvedRun, cluster: Cluster) -> Callable[[Optimization], bool]:
    """Return the function that tells whether a technique runs over the ranks of a cluster."""
    wide = run.model_copy(update={"ranks": cluster.size})

    def able(one: Optimization) -> bool:
        try:
            one.check(wide, cluster.machine)
        except UsageError:
            return False
        return True

    return able


def _of_share(
    run: ResolvedRun, machine: Machine, cluster: Cluster, limits: Limits, serves: Callable[[Optimization], bool]
) -> Problem:
    """Return the search on one device with a rank's share of the batch, in unlimited memory."""
    least = run.batch_divisor * prod(one.cuts() for one in optimizations_of(run))
    share = max(1, run.training.batch_size // (cluster.size * least)) * least
    training = run.training.model_copy(update={"batch_size": share})
    one = resolve_run(run.model_copy(update={"training": training}))
    return Problem(one, machine, replace(limits, budget_bytes=_UNLIMITED), serves)
