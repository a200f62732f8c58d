"""Work and least memory of thousands of stacks, from ledgers of two shallow models that stacks share.

- A stack's ledger is its prefix's with one more technique, so prefixes are folded once.
- An optimizer that changes nothing but the update rule is added to forwards and backwards that others share.
- Blocks do equal work, so work is affine in their number. The peak is a maximum of affine functions of it, so it is
  convex: the line through two depths is a lower bound beyond them. Both are checked at a third depth.

A search by these bounds ends with ledgers of the whole model (`search`). Techniques that treat blocks unequally, and
steps over ranks, are folded at the whole depth.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from assay.advise.elements import Element
from assay.config.run import ResolvedRun
from assay.cost import Cost
from assay.cost.scratch import scratch_by_operation
from assay.cost.simulation.reserved import high_within, record_events, with_update
from assay.cost.simulation.served import Passes, Update, most_bytes, passes, saved_at_least, update
from assay.errors import UsageError
from assay.estimator.device_memory import CONTEXT, least_around, working_storage_of_gpu
from assay.estimator.estimate import bare_ledger
from assay.estimator.timing.gpu_time import pass_work, update_work
from assay.estimator.timing.step_time import RooflineWork, at_depth
from assay.hardware import Machine, Rates
from assay.hardware.rates import thread_count
from assay.optimizations import Optimization, optimizations_of

_SHALLOW = (2, 3)
_CHECKED = 4
_PART = 4
"""A deeper bound is that of a model of one part of so many of the blocks."""
Positions = tuple[int, ...]


@dataclass(frozen=True)
class _Depth:
    """A model of so many blocks, and the ledgers of its stacks by the positions of their elements."""

    run: ResolvedRun
    begun: dict[Positions, Cost | None]
    """Ledgers until the last element of a stack, without the run's own techniques that come after it."""
    ledgers: dict[Positions, Cost | None]


@dataclass(frozen=True)
class _Update:
    """Work of an update at the whole depth, and its needs at each shallow one; no work if a rate is not known."""

    work: RooflineWork | None
    needs: tuple[Update, ...]


class Ledgers:
    """Ledgers of the stacks of some elements."""

    def __init__(self, run: ResolvedRun, machine: Machine, found: Sequence[Element], rates: Rates, of: str) -> None:
        self.run, self.machine, self.found, self.rates, self.of = run, machine, found, rates, of
        self._on_gpu = machine.device(run.device) == "cuda"
        self._given = [((one.stage, one.name()), one) for one in optimizations_of(run)]
        shallow = _SHALLOW if run.model.n_layer > _CHECKED and run.ranks == 1 else (run.model.n_layer,)
        self._depths = [self._at(layers) for layers in shallow]
        self._parts: dict[Positions, tuple[Positions, Positions]] = {}
        self._works: dict[Positions, RooflineWork | None] = {}
        self._updates: dict[tuple[object, ...], _Update] = {}
        self._passes: dict[tuple[Positions, int], Passes] = {}
        self._quick: dict[tuple[Positions, int], Passes] = {}
        self._quarter_passes: dict[Positions, Passes] = {}
        self._events: dict[Positions, list[int]] = {}
        """Requests and frees of forward and backward at the whole depth, where the search needs them."""

    def _at(self, layers: int) -> _Depth:
        run = at_depth(self.run, layers)
        return _Depth(run, {(): bare_ledger(run, self.machine)}, {})

    @cached_property
    def _deep(self) -> _Depth:
        """The model of the whole depth."""
        return self._depths[0] if len(self._depths) == 1 else self._at(self.run.model.n_layer)

    @cached_property
    def _quarter(self) -> _Depth:
        """The model of a quarter of the blocks."""
        return self._at(max(1, self.run.model.n_layer // _PART))

    @cached_property
    def idle(self) -> frozenset[int]:
        """Elements that add nothing but tensors to the ledger, so that no prediction can favour them."""
        bare = self._bare
        return self._alone(lambda one: replace(one, buffers=bare.buffers, batch=bare.batch) == bare)

    @cached_property
    def rules(self) -> frozenset[int]:
        """Elements that change nothing in the ledger but the rule of the update."""
        bare = self._bare
        return self._alone(lambda one: one.updated_by(bare.optimizer.rule) == bare) - self.idle

    @property
    def _bare(self) -> Cost:
        return self._known(0, ())

    def _alone(self, holds: Callable[[Cost], bool]) -> frozenset[int]:
        """Return the elements whose ledger alone, at the first depth, satisfies a condition."""
        alone = ((i, self._ledger(self._depths[0], (i,))) for i in range(len(self.found)))
        return frozenset(i for i, one in alone if one is not None and holds(one))

    def seconds(self, stack: Positions) -> float | None:
        """Return the seconds of a step by its work; None if they are not predicted."""
        shape, rule = self._parted(stack)
        if shape not in self._works:
            ledgers = [self._ledger(depth, shape) for depth in self._depths]
            self._works[shape] = self._whole([None if one is None else pass_work(one, self.rates) for one in ledgers])
        passing = self._works[shape]
        updating = None if passing is None else self._update(shape, rule).work
        return None if passing is None or updating is None else passing.plus(updating).seconds(self.rates)

    def least_bytes(self, stack: Positions) -> int:
        """Return a lower bound of what a step needs of the memory that the budget limits; it is nearly always exact."""
        return self._extended(stack, self._need_at)

    def deep_bytes(self, stack: Positions) -> int:
        """Return a lower bound on the line through the deeper shallow model and one of a quarter of the blocks.

        In a shallow model another instant has the peak than in a deep one, as with many micro-batches.
        """
        layers, (low, high) = (
            self.run.model.n_layer,
            (self._depths[-1].run.model.n_layer, self._quarter.run.model.n_layer),
        )
        if high <= low or len(self._depths) == 1:
            return self.least_bytes(stack)
        shape, rule = self._parted(stack)
        cost = self._ledger(self._quarter, shape)
        if cost is None or self._updates_within(cost):
            return self.least_bytes(stack)
        if shape not in self._quarter_passes:
            self._quarter_passes[shape] = passes(cost, self._scratch(cost), on_gpu=self._on_gpu)
        ruled = update(self._ruled(self._quarter, cost, rule), on_gpu=self._on_gpu)
        most = self._quarter_passes[shape].updated(ruled)
        each = (most - self._need_at(len(self._depths) - 1, shape, rule)) // (high - low)
        return most + (layers - high) * each + least_around(self.of, self.machine, on_gpu=self._on_gpu)

    def quick_bytes(self, stack: Positions) -> int:
        """Return a lower bound that no replay is needed for: the bytes saved for backward, or those of the update."""
        return self._extended(stack, self._quick_at)

    def _extended(self, stack: Positions, need: Callable[[int, Positions, Positions], int]) -> int:
        shape, rule = self._parted(stack)
        found = [(d.run.model.n_layer, need(place, shape, rule)) for place, d in enumerate(self._depths)]
        (low, least), (high, most) = found[0], found[-1]
        extra = 0 if low == high else (self.run.model.n_layer - high) * (most - least) // (high - low)
        return most + extra + least_around(self.of, self.machine, on_gpu=self._on_gpu)

    def device_bytes(self, stack: Positions, limit_bytes: float) -> int | None:
        """Return the memory of a device in use by its simulated allocator; None beyond a limit, which is soon known.

        Stacks that differ in the rule of their update share the requests of forward and backward. The need of captured
        graphs is not known, so it is None within any limit.
        """
        shape, rule = self._parted(stack)
        cost = self._ledger(self._deep, shape)
        if cost is None or cost.replayed:
            return None
        if shape not in self._events:
            self._events[shape] = record_events(cost)
        whole, working = self._ruled(self._deep, cost, rule), working_storage_of_gpu(cost, self.machine)
        found = high_within(whole, with_update(self._events[shape], whole), working, limit_bytes - CONTEXT.high)
        return None if found is None else found + CONTEXT.high

    def _whole(self, works: Sequence[RooflineWork | None]) -> RooflineWork | None:
        """Return the work at the whole depth, on the line through that of the shallow ones; None if one is unknown."""
        less, more = works[0], works[-1]
        if less is None or more is None:
            return None
        low, high = (self._depths[place].run.model.n_layer for place in (0, -1))
        further = 0.0 if low == high else (self.run.model.n_layer - high) / (high - low)
        return more.plus(more.plus(less, -1.0), further)

    def _parted(self, stack: Positions) -> tuple[Positions, Positions]:
        """Return the elements that shape forward and backward, and those that only replace the update rule."""
        if stack not in self._parts:
            rule = tuple(i for i in stack if i in self.rules)
            shape = tuple(i for i in stack if i not in self.rules)
            folded = self._ledger(self._depths[0], shape) if rule else None
            together = folded is not None and self._updates_within(folded)
            self._parts[stack] = (stack, ()) if together else (shape, rule)
        return self._parts[stack]

    def _ledger(self, depth: _Depth, stack: Positions) -> Cost | None:
        """Return the ledger of a stack at a depth; None if it cannot be predicted."""
        if stack not in depth.ledgers:
            own = [one for order, one in self._given if order > self._last(stack)]
            depth.ledgers[stack] = self._folded(self._begun(depth, stack), own, depth.run)
        return depth.ledgers[stack]

    def _begun(self, depth: _Depth, stack: Positions) -> Cost | None:
        """Return the ledger until the last element of a stack, in the order of application."""
        if stack not in depth.begun:
            before, element = stack[:-1], self.found[stack[-1]]
            own = [one for order, one in self._given if self._last(before) < order < element.order]
            depth.begun[stack] = self._folded(self._begun(depth, before), [*own, element.one], depth.run)
        return depth.begun[stack]

    def _last(self, stack: Positions) -> tuple[int, str]:
        return self.found[stack[-1]].order if stack else (-1, "")

    def _folded(self, cost: Cost | None, added: Sequence[Optimization], run: ResolvedRun) -> Cost | None:
        try:
            for one in added:
                cost = None if cost is None else one.predict(cost, run, self.machine)
        except UsageError:
            return None
        return cost

    def _known(self, place: int, shape: Positions) -> Cost:
        found = self._ledger(self._depths[place], shape)
        assert found is not None
        return found

    def _update(self, shape: Positions, rule: Positions) -> _Update:
        """Return the update of a stack, which all stacks with the same weights share."""
        every = [self._known(place, shape) for place in range(len(self._depths))]
        key = (*(id(one.pieces) for one in every), *(id(one.optimizer.shards) for one in every), rule or shape)
        if key not in self._updates:
            ruled = [self._ruled(depth, one, rule) for depth, one in zip(self._depths, every, strict=True)]
            needs = tuple(update(one, on_gpu=self._on_gpu) for one in ruled)
            self._updates[key] = _Update(self._whole(list(map(self._update_work, ruled))), needs)
        return self._updates[key]

    def _ruled(self, depth: _Depth, cost: Cost, rule: Positions) -> Cost:
        """Return a ledger with the rule of an element."""
        alone = self._ledger(depth, rule) if rule else None
        return cost if alone is None else cost.updated_by(alone.optimizer.rule)

    def _update_work(self, cost: Cost) -> RooflineWork | None:
        used = {one.dtype for one in cost.optimizer.rule.products(cost.updated)}
        return update_work(cost, self.rates) if used <= set(self.rates.matmul_flops) else None

    def _need_at(self, place: int, shape: Positions, rule: Positions) -> int:
        cost = self._known(place, shape)
        if self._updates_within(cost):
            ruled = self._ruled(self._depths[place], cost, rule)
            return most_bytes(ruled, self._scratch(ruled), on_gpu=self._on_gpu)
        key = (shape, place)
        if key not in self._passes:
            self._passes[key] = passes(cost, self._scratch(cost), on_gpu=self._on_gpu)
        return self._passes[key].updated(self._update(shape, rule).needs[place])

    def _quick_at(self, place: int, shape: Positions, rule: Positions) -> int:
        cost = self._known(place, shape)
        if self._updates_within(cost):
            return 0
        key = (shape, place)
        if key not in self._quick:
            held, gradients = sum(one.nbytes for one in cost.held_at_first), cost.gradient_bytes
            saved = held + saved_at_least(cost) + (gradients if cost.micro_batches > 1 else 0)
            self._quick[key] = Passes(saved, held + gradients)
        return self._quick[key].updated(self._update(shape, rule).needs[place])

    @staticmethod
    def _updates_within(cost: Cost) -> bool:
        """True if an update is no phase of its own after backward."""
        return cost.optimizer.in_backward or cost.sharding.on_host

    def _scratch(self, cost: Cost) -> dict[tuple[str, str], int]:
        if self._on_gpu:
            return {}
        threads = thread_count(self.machine, self.run.threads)
        return scratch_by_operation(cost, self.machine.instruction_set, threads) or {}
