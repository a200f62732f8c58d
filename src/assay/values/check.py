"""Compare a run's record with its references, and report the differences.

There are five questions, in this order. Are the batches those that seed and step determine? Do all replicas agree, and
are the initial weights the seed's? Are losses and gradients those of the baseline program at the same weights, batch
and random state? Are the updates those of the optimizer's rule, replayed slowly with the program's own gradients? Was
something rounded where it had to be?
"""

# More than 400 lines: the questions share the record and its references, and each is a few lines.
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from assay.config import ResolvedRun
from assay.data import Prepared
from assay.model.adapted_linear import initial_adapter
from assay.optimizations import expected_of
from assay.records.evidence import ValueProof
from assay.reference.expected import REASSOCIATED, Closeness, Expected, Rounding, lossy
from assay.training.initial import named_weights
from assay.training.stops import is_out_of_memory
from assay.values import nearness
from assay.values.baseline import Reference, References, processor_seconds
from assay.values.by_rows import forwards_by_rows
from assay.values.computed import Computed, NoTruth, Rounded, baseline_failure
from assay.values.masks import MasksDiffer, Noise
from assay.values.nearness import Judged, too_equal, too_wide, wide_groups
from assay.values.pooled import Pooled
from assay.values.recorded import Recorded, RecordedStep
from assay.values.replayed_updates import judged_updates
from assay.values.rounding import may_reduce_in_16_bits
from assay.values.whole_batch import whole_batch_failures
from assay.values.without_reference import plain_failures

_Imitation = TypeVar("_Imitation")

_ROUTED = 4.0
"""Factor on a mixture's lossy bounds: rounding sends some tokens to other experts."""
_OWN_ROUNDING = Rounding(dtype="bfloat16")
"""Rounding by which lossy values of a user's own are judged if their techniques state none."""
_DRAWS = 5
"""References of honest rounding, at most, by which a value that is not exact is judged."""
_COARSE = lossy(1e-3, slope=1e-3, loss=1e-5)
"""Bounds of a reassociated step of the middle within which float64 is not needed."""
_SAME_LOSS = 1e-6
"""Relative difference of two losses of one baseline from which on it keeps state; accelerators may differ."""
_STATE = (
    "{} computes another loss when it is called again at the same weights, batch and random state, so there is nothing "
    "to compare its values with; keep in a buffer what a forward changes"
)
_FEW_TARGETS = 0.1
"""`Closeness.small_tensor` on batches of a user's own, which may have one target in a row."""


@dataclass(frozen=True)
class _Found:
    """Loss and gradients that the program computed in one step."""

    step: int
    loss: float
    gradients: Mapping[str, Tensor] | None
    """None if the step made no update."""
    dropout: bool = True
    """False for a probe without dropout."""


@dataclass(frozen=True)
class Check:
    """One part of a run, as it was recorded, with its references."""

    recorded: Recorded
    run: ResolvedRun
    expected: Expected
    data: Prepared
    device: torch.device
    references: References

    def judged(self) -> list[Judged]:
        """Return every loss, gradient and update, each with its error relative to its bound."""
        return self._computed()[0] + judged_updates(self.recorded, self.run, self.expected)

    def proof(self) -> ValueProof:
        """Return the result of the whole check. Changes the random state and torch's global settings."""
        began, worked = time.perf_counter(), processor_seconds(self.device)
        own = self.references.near.own_batches
        failures = plain_failures(self.recorded, self.run, self.expected, self.data, own)
        judged, failed = self._computed()
        judged += judged_updates(self.recorded, self.run, self.expected)
        wide = wide_groups(judged, self.expected.gradients)
        self.references.wide_groups += wide
        failures += failed + nearness.sentences(judged) + too_equal(judged, self.expected)
        failures += too_wide(self.references.wide_groups) if wide else []
        count = len(self.recorded.steps)
        if self.recorded.part in ("beginning", "end") and not any(step.updated for step in self.recorded.steps):
            failures.append(f"none of the {count} recorded steps made an update")
        worked = processor_seconds(self.device) - worked
        return ValueProof(
            verdict=not failures,
            failures=tuple(failures),
            steps=len(self._compared()),
            updates=sum(step.updated for step in self.recorded.steps),
            replayed=count if self.recorded.part == "middle" else 0,
            evaluations=int(self.recorded.part == "evaluation"),
            wide_groups=wide,
            without_dropout=self.references.probes,
            reduced_reductions=self._reduced,
            half_repeated_masks=sum(one.half_again for one in self.recorded.mask_counts()),
            seconds=time.perf_counter() - began,
            baseline_steps=self.references.baseline_steps(worked),
            replay_baseline_steps=self.references.replay_steps if self.recorded.part == "beginning" else None,
            **nearness.figures(judged),
        )

    def repeats(self) -> bool:
        """Return whether the baseline has the same loss twice, at equal weights, buffers, batches and chance.

        A user's own model may keep state elsewhere, such as a count of its calls.
        """
        if self.run.model.own is None or not self.recorded.steps:
            return True
        first, again = (self._reference(self.references.near, self.recorded.first).loss for _ in range(2))
        return abs(first - again) <= _SAME_LOSS * abs(first)

    def _computed(self) -> tuple[list[Judged], list[str]]:
        """Return judged losses and gradients, and other failures."""
        failed = self._initial() if self.recorded.part == "beginning" and self.recorded.first == 0 else []
        if self.recorded.part == "beginning":
            failed += whole_batch_failures(self.recorded, self.run, self.references.near, self.references.truth)
        judged = self._evaluated()
        if self.references.probes:
            probed, more = self._probed()
            return judged + probed, failed + more
        for step in self._compared():
            near = self._baseline_step(step.index)
            found, more = self._of_step(step, near)
            judged, failed = judged + found, failed + more
        return judged, failed

    def _compared(self) -> list[RecordedStep]:
        """Return the recorded steps whose losses and gradients are compared; updates are replayed in all.

        The second step at the end is there for its update. Values that are not exact cost several times as much,
        because they need float64 or a reference that rounds. So of the first steps reassociated ones are compared in
        the first and the last, and lossy ones in the last. The time goes to steps of the middle instead.
        """
        steps, kind, part = self.recorded.steps, self._close().kind, self.recorded.part
        if part == "end":
            return steps[:1]
        if part == "beginning" and kind == "lossy":
            return steps[-1:]
        return steps[:: len(steps) - 1] if len(steps) > 2 and kind == "reassociated" else steps

    def _of_step(self, step: RecordedStep, near: Computed) -> tuple[list[Judged], list[str]]:
        """Judge one step, and return other failures as well.

        In the middle float32 suffices for most steps. The bounds of inexact values are coarse there. A reassociated
        step beyond them may be as far from one baseline as a disturbed one is. Any step beyond these is judged like the
        others, by float64 or by a reference that rounds.
        """
        kind = self._close().kind
        gradients = self.recorded.tensors("gradient", step.index) if step.updated else None
        values, exact, failed = _Found(step.index, step.loss, gradients), near, list[str]()
        if self.recorded.part == "middle":
            close = _COARSE if kind == "reassociated" else self._close()
            judged = self._judged(values, near, near, (), close)
            if kind == "reassociated" and any(one.failed for one in judged):
                judged = self._judged(values, self._disturbed(step.index, 1), near, (), self._close())
            if kind == "exact" or not any(one.failed for one in judged):
                return judged, failed
        # Float32's loss is compared with float64's once. It is the truth of values with larger errors, and exact ones.
        # A model of a user's own is its own baseline, and may well compute something else in float64.
        if kind == "reassociated":
            exact = self._reference(self.references.truth, step.index)
            failed = baseline_failure(near.loss, exact.loss, self.expected)
        elif self.recorded.part == "beginning" and step is self._compared()[0] and self.run.model.own is None:
            failed = baseline_failure(near.loss, self.references.truth.loss_at(*self._given(step.index)), self.expected)
        return self._held(values, near, exact), failed

    def _held(self, values: _Found, near: Computed, exact: Computed) -> list[Judged]:
        """Judge a step's loss and gradients. Where softmaxes are saturated, the largest honest errors are rare.

        One baseline may then show too small errors by chance. So a reassociated value beyond its bound is judged by
        the largest error of several baselines. They are disturbed as by another order of summation.
        """
        if self._close().kind == "lossy":
            return self._imitated(values, near, exact)
        judged = self._judged(values, near, exact, (), self._close())
        for draw in range(1, _DRAWS):
            if self._close().kind == "exact" or not any(one.failed for one in judged):
                break
            near = self._disturbed(values.step, draw, dropout=values.dropout)
            more = self._judged(values, near, exact, (), self._close())
            judged = [min(pair, key=lambda one: one.used) for pair in zip(judged, more, strict=True)]
        return judged

    def _imitated(self, values: _Found, near: Computed, exact: Computed) -> list[Judged]:
        """Judge lossy values by one imitation of honest rounding, and what it refuses by several together."""

        def imitated(draws: Sequence[int]) -> list[Rounded]:
            found = (self._rounded(values.step, dropout=values.dropout, draw=draw) for draw in draws)
            return [one for one in found if one is not None]

        imitations = imitated([0])
        first = self._judged(values, near, exact, imitations, self._close())
        if not any(one.failed for one in first):
            return first
        imitations += imitated(range(1, _DRAWS))
        several = self._judged(values, near, exact, imitations, self._close())
        return [min(pair, key=lambda one: one.used) for pair in zip(first, several, strict=True)]

    def _probed(self) -> tuple[list[Judged], list[str]]:
        first, found = self.recorded.first, self.recorded.tensors("probe", self.recorded.first)
        if self.recorded.probe_loss is None:
            return [], []
        near = self._baseline_step(first, dropout=False)
        exact = self._reference(self.references.truth, first, dropout=False)
        judged = self._held(_Found(first, self.recorded.probe_loss, found, dropout=False), near, exact)
        return judged, baseline_failure(near.loss, exact.loss, self.expected)

    def _rounded(
        self,
        step: int,
        windows: Sequence[tuple[Tensor, Tensor]] | None = None,
        *,
        dropout: bool = True,
        draw: int = 0,
    ) -> Rounded | None:
        """Return lossy values with honest rounding at the weights of a step, on its batch or on evaluated windows.

        A `draw` above 0 has other errors: its weights are off by about a roundoff.
        """
        close = self._close()
        rounding = close.rounding or (_OWN_ROUNDING if self.run.own_rows is not None else None)
        if rounding is None or close.kind != "lossy":
            return None
        rounded_at = partial(self.references.near.rounded_at, rounding=rounding, draw=draw)
        if windows is None:
            return rounded_at(*self._given(step), dropout=dropout, buffers=self._buffers(step))
        weights, buffers = self._weights(step), self.recorded.tensors("buffer", step)
        return rounded_at(weights, windows, self.recorded.noise(step), dropout=False, buffers=buffers)

    def _evaluated(self) -> list[Judged]:
        """Judge each recorded group of an evaluation.

        Float32 is near enough to most of them. Only where a loss is further off, float64 and rounding are computed.
        """
        step, close, judged = self.recorded.first, self.expected.gradients, list[Judged]()
        if self.run.model.n_expert is not None:  # rounding sends some tokens to other experts
            close = close.model_copy(update={"loss": _ROUTED * close.loss})
        weights, buffers = self._weights(step), self.recorded.tensors("buffer", step)
        noise = self.recorded.noise(step)
        for number, (summed, targets) in self.recorded.evaluated.items():
            windows, _ = forwards_by_rows(self.recorded.windows(number), noise, self.references.rows)
            found = summed / targets if targets else math.nan
            near, counted = self.references.near.evaluated_at(weights, windows, noise, buffers)
            one = nearness.evaluation(step, number, found, near, close)
            if one.failed:
                exact, _ = self.references.truth.evaluated_at(weights, windows, noise, buffers)
                moved = _moved(exact, self._rounded(step, windows))
                one = nearness.evaluation(step, number, found, near, close, exact, moved)
            judged.append(one if counted == targets else replace(one, used=math.inf))
        return judged

    def _baseline_step(self, step: int, *, dropout: bool = True) -> Computed:
        """Return the values of a float32 baseline step, whose time is the unit of what the check costs."""
        near = self.references.near
        began = processor_seconds(self.device)
        found = self._reference(near, step, dropout=dropout)
        self.references.seconds_of_steps.append(processor_seconds(self.device) - began)
        return found

    def _reference(self, reference: Reference, step: int, *, dropout: bool = True) -> Computed:
        return reference.at(*self._given(step), dropout=dropout, buffers=self._buffers(step))

    def _disturbed(self, step: int, draw: int, *, dropout: bool = True) -> Computed:
        disturbed_at = self.references.near.disturbed_at
        return disturbed_at(*self._given(step), draw, dropout=dropout, buffers=self._buffers(step))

    def _given(self, step: int) -> tuple[Mapping[str, Tensor], list[tuple[Tensor, Tensor]], Noise]:
        """Return what a reference of a step begins with: weights, batches and chance."""
        batches, noise = forwards_by_rows(self._batches(step), self.recorded.noise(step), self.references.rows)
        return self._weights(step), batches, noise

    def _buffers(self, step: int) -> Mapping[str, Tensor]:
        """Return the buffers with which a step began; empty but for a model of the user's own."""
        return self.recorded.tensors("training buffer", step)

    def _weights(self, step: int) -> Mapping[str, Tensor]:
        return self.expected.numbers(self.recorded.tensors("weight", step))

    def _batches(self, step: int) -> list[tuple[Tensor, Tensor]]:
        model = self.run.model  # a mixture balances the tokens of one forward, and masks are drawn forward by forward
        cut = model.n_expert is not None or model.dropout > 0 or model.own is not None
        return self.recorded.micro_batches(step) if cut else [self.recorded.batch(step)]

    def _judged(
        self, values: _Found, near: Computed, exact: Computed, imitations: Sequence[Rounded], close: Closeness
    ) -> list[Judged]:
        """Judge a loss, a norm, and gradients: one by one, or those of `imitations` together.

        A loss, a norm and a gradient of a user's own must be near to one of the imitations.
        """
        pooled = Pooled(self._close(), self.run.model.n_expert is not None, self._reduced)
        step, found = values.step, values.gradients
        judged = [
            _nearest(
                imitations,
                lambda one: nearness.loss(step, values.loss, near.loss, exact.loss, close, _moved(exact.loss, one)),
            )
        ]
        if found is None:
            return judged
        reported = [one.log_norm for one in self.recorded.steps if one.index == step]
        if reported and not self.references.probes:
            judged.append(_nearest(imitations, lambda one: nearness.norm(step, reported[0], near, found, one)))
        typical = exact.typical if close.kind == "lossy" else 0.0
        for name, truth in exact.gradients.items():
            own = found[name].to(self.device) if name in found else None
            coarse = [one.gradients[name] for one in imitations if name in one.gradients]
            if coarse and own is not None and own.shape == truth.shape and self.run.model.own is None:
                pooled.add(step, name, own, truth, coarse, typical)
                continue
            judge = partial(nearness.gradient, step, name, own, near.gradients[name], truth, close, typical)
            judged.append(_nearest(coarse, judge))
        return judged + list(pooled.judged())

    @property
    def _reduced(self) -> bool:
        """True if the GPU may add up products of this run in 16 bits."""
        return self.device.type == "cuda" and self._close().rounding is not None and may_reduce_in_16_bits()

    def _close(self) -> Closeness:
        """Return the bound of gradients. An accelerator may not be bit-reproducible; there exact means reassociated."""
        close = self.expected.gradients
        if close.kind == "exact" and self.device.type != "cpu":
            return REASSOCIATED
        if close.kind == "lossy" and close.rounding is None and self.run.model.n_expert is not None:
            return close.model_copy(update={"relative": _ROUTED * close.relative, "slope": _ROUTED * close.slope})
        if close.kind == "lossy" and self.run.own_rows is not None:
            return close.model_copy(update={"small_tensor": _FEW_TARGETS})
        return close

    def _initial(self) -> list[str]:
        """Compare the first recorded weights with those of the named folder, or else of the seed."""
        found = self._weights(0)
        own, source = self.references.near.weights(), self.run.model.init_from
        own = own if source is None else named_weights(self.run, own)
        adapters, factors = self.expected.adapters, self.expected.initial_factors
        shapes = {} if adapters is None else adapters.shapes(self.expected.model)
        own |= {name: initial_adapter(name, torch.Size(shape), self.run.seed) for name, shape in shapes.items()}
        own = {name: one * factors.get(name, 1.0) for name, one in own.items()}
        own = own if adapters is None else {name: adapters.rounded(name, one) for name, one in own.items()}
        return [
            f"the initial weights of {name} are not those of {source or f'seed {self.run.seed}'}"
            for name, one in own.items()
            if name not in found or not torch.equal(one.to(found[name]), found[name])
        ][:1]


def _nearest(imitations: Sequence[_Imitation], judge: Callable[[_Imitation | None], Judged]) -> Judged:
    """Judge a value by each of some imitations of rounding, or by none if there are none, and keep the best answer."""
    return min((judge(one) for one in imitations or (None,)), key=lambda one: one.used)


def _moved(exact: float, rounded: Rounded | None) -> float | None:
    """Return how far rounding moves a loss; None if that was not computed."""
    return None if rounded is None else max(abs(rounded.loss - exact), rounded.spread)


class Checker:
    """Checks the records of one run, part by part."""

    def __init__(self, run: ResolvedRun, data: Prepared, device: torch.device) -> None:
        self.run, self._data, self.device = run, data, device
        self._expected = expected_of(run)
        self._references = References(run, self._expected, data, device)

    def prepare(self) -> None:
        """Build the reference programs before a check needs them.

        A program for which there is no memory yet is built when it is used.
        """
        if self._expected.unstated:
            return
        try:
            self._references.build()
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise

    def check(self, recorded: Recorded) -> ValueProof:
        """Compare a record with its references; the proof is unchecked if the baseline runs out of memory."""
        if self._expected.unstated:
            return ValueProof(unchecked=f"{', '.join(self._expected.unstated)} does not state which values it computes")
        if not recorded.steps and not recorded.evaluated:
            return ValueProof(broken="nothing was recorded")
        if missing := recorded.missing_shares():
            return ValueProof(failures=(f"no rank trained on share {missing[0]} of the batch",))
        check = Check(recorded, self.run, self._expected, self._data, self.device, self._references)
        try:
            found = check.proof()
            has_state = not found.verdict and not check.repeats()
            return ValueProof(unchecked=_STATE.format(self.run.model.own)) if has_state else found
        except MasksDiffer as error:
            return ValueProof(failures=(str(error),))
        except NoTruth as error:
            return ValueProof(unchecked=str(error))
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            return ValueProof(unchecked="the baseline ran out of memory, so there is nothing to compare with")


def check_values(recorded: Recorded, run: ResolvedRun, data: Prepared, device: torch.device) -> ValueProof:
    """Compare a single record with its references."""
    return Checker(run, data, device).check(recorded)
