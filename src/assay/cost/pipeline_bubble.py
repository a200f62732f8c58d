"""Bubbles of pipelines: the published formulas, and a simulator that plays any schedule on unequal stages.

A stage idles while the pipeline fills and drains. With p equal stages, m micro-batches and v chunks a stage that takes
(p−1)(t_F + t_B)/v seconds. The share of the whole step is (p−1)/(vm + p−1). Papers often print the bubble over the
useful time instead, (p−1)/(vm): `bubble_fraction` is the share of the step.

Zero-bubble schedules divide backward into the gradient of the input (t_I) and of the weights (t_W). ZB-H1 leaves a
bubble of (p−1)(t_F + t_I − t_W), with p micro-batches held. ZB-H2 leaves (p−1)(t_F + t_I − 2 t_W), with 2p−1 held. ZB-V
leaves none with p held if t_F = t_I = t_W. All of that assumes equal stages, free sends, t_W no longer than the others,
and as many micro-batches as are held. ZB-H2 and ZB-V are without a bubble only if no stage waits for another before its
update. That is counted from a stage's own begin to its own end, `span_seconds`. A step that ends for all at once still
contains the pipeline's fill, which is in `makespan_seconds`.

The simulator plays the order of each stage as written: an action begins when its stage is free and its inputs have
arrived. Sends take time and occupy no stage. Its caveat is the converse: real schedules adapt, and sends contend.

Sources: Huang et al. 2019, arXiv:1811.06965; Narayanan et al. 2021, arXiv:2104.04473, section 2.2; Qi et al. 2023,
arXiv:2401.10241, tables 1 and 2.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from assay.cost.pipeline_schedules import Action, Schedule


@dataclass(frozen=True)
class StageTime:
    """Seconds that all layers of a stage take for one micro-batch."""

    forward_seconds: float
    input_seconds: float
    """Seconds of backward to the stage's input."""
    weight_seconds: float
    """Seconds of backward to the stage's weights."""

    def share(self, parts: int) -> "StageTime":
        """The times of one of `parts` equal chunks of the layers."""
        return StageTime(self.forward_seconds / parts, self.input_seconds / parts, self.weight_seconds / parts)

    def of(self, kind: str) -> float:
        """Seconds of one kind of action."""
        halves = {"F": self.forward_seconds, "I": self.input_seconds, "W": self.weight_seconds}
        return self.input_seconds + self.weight_seconds if kind == "B" else halves[kind]


@dataclass(frozen=True)
class Played:
    """Times and memory of a simulated schedule."""

    makespan_seconds: float
    begin_seconds: tuple[tuple[float, ...], ...]
    """Begin of each action, by stage and in the stage's order."""
    busy_seconds: tuple[float, ...]
    """Computing time of each stage."""
    span_seconds: tuple[float, ...]
    """Time from the begin of each stage's first action to the end of its last."""
    held: tuple[Fraction, ...]
    """Most micro-batches whose activations are alive at once, by stage; a chunk counts as its share."""

    @property
    def idle_shares(self) -> tuple[float, ...]:
        """Idle share of the whole step, by stage."""
        return tuple(1 - busy / self.makespan_seconds for busy in self.busy_seconds)

    @property
    def idle_share(self) -> float:
        """Idle share of all stages' time."""
        return sum(self.idle_shares) / len(self.busy_seconds)


def bubble_fraction(stages: int, micro_batches: int, chunks: int = 1) -> float:
    """Share of a step that each of equal stages idles: GPipe and 1F1B, and with chunks interleaved 1F1B."""
    return (stages - 1) / (chunks * micro_batches + stages - 1)


def zero_bubble_seconds(stages: int, time: StageTime, put_off: int = 1) -> float:
    """Seconds that a stage idles in its span under ZB-H1, or with `put_off` 2 under ZB-H2; never below 0."""
    left = time.forward_seconds + time.input_seconds - put_off * time.weight_seconds
    return max(0.0, (stages - 1) * left)


def play(schedule: Schedule, times: Sequence[StageTime], send_seconds: float = 0.0) -> Played:
    """Simulate a step of stages with equal chunks. Raises `ValueError` if stages wait for ever."""
    return play_chunks(schedule, [[one.share(schedule.chunks)] * schedule.chunks for one in times], send_seconds)


def play_chunks(schedule: Schedule, times: Sequence[Sequence[StageTime]], send_seconds: float = 0.0) -> Played:
    """Simulate a step, given the time of each chunk of each stage. Raises `ValueError` if stages wait for ever."""
    ends: dict[tuple[str, int, int], float] = {}
    clock = [0.0] * schedule.stages
    begins: list[list[float]] = [[] for _ in range(schedule.stages)]
    busy = [0.0] * schedule.stages
    reached = [0] * schedule.stages
    ahead = True
    while ahead:
        ahead = False
        for stage, order in enumerate(schedule.orders):
            while reached[stage] < len(order):
                action = order[reached[stage]]
                ready = _ready(schedule, stage, action, ends, send_seconds)
                if ready is None:
                    break
                begin = max(clock[stage], ready)
                taken = times[stage][action.chunk].of(action.kind)
                clock[stage] = begin + taken
                busy[stage] += taken
                begins[stage].append(begin)
                ends[_key(action, schedule.position(stage, action.chunk))] = clock[stage]
                reached[stage] += 1
                ahead = True
    for stage, order in enumerate(schedule.orders):
        if reached[stage] < len(order):
            raise ValueError(f"stage {stage} waits forever before {order[reached[stage]]}")
    spans = tuple(end - begun[0] if begun else 0.0 for end, begun in zip(clock, begins, strict=True))
    held = tuple(_held(order, schedule.chunks) for order in schedule.orders)
    return Played(max(clock), tuple(map(tuple, begins)), tuple(busy), spans, held)


def _key(action: Action, position: int) -> tuple[str, int, int]:
    # A whole backward passes on the gradient of its input as its first half does.
    return "I" if action.kind == "B" else action.kind, action.micro_batch, position


def _ready(
    schedule: Schedule, stage: int, action: Action, ends: dict[tuple[str, int, int], float], send_seconds: float
) -> float | None:
    """Time at which an action's inputs have arrived; None while that is not known."""
    position = schedule.position(stage, action.chunk)
    last = schedule.stages * schedule.chunks - 1
    if action.kind == "W":
        return ends.get(("I", action.micro_batch, position))
    forward = action.kind == "F"
    neighbour = position - 1 if forward else position + 1
    if forward and position == 0:
        return 0.0
    if not forward and position == last:
        return ends.get(("F", action.micro_batch, position))
    end = ends.get(("F" if forward else "I", action.micro_batch, neighbour))
    if end is None or (not forward and ("F", action.micro_batch, position) not in ends):
        return None
    # At the turn of a vee both neighbours are chunks of the same stage.
    turns = schedule.placement == "vee" and position // schedule.stages != neighbour // schedule.stages
    return end if turns or schedule.stages == 1 else end + send_seconds


def _held(order: Sequence[Action], chunks: int) -> Fraction:
    """Most micro-batches alive at once.

    A chunk's activations live from its forward to the last gradient that needs them.
    """
    most = alive = 0
    for action in order:
        alive += {"F": 1, "I": 0}.get(action.kind, -1)
        most = max(most, alive)
    return Fraction(most, chunks)
