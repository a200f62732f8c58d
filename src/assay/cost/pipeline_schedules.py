"""Pipeline schedules as lists: the order of each stage's forwards and backwards. They are used for prediction only.

A stage may hold several chunks of the layers. In a `loop` the layers go round the stages once for each chunk. In a
`vee` they go down the stages and back up, so that the first stage has the first layers and the last ones.

| schedule | idea | micro-batches held by stage i of p |
| --- | --- | --- |
| `gpipe` | all forwards, then all backwards | m |
| `one_f_one_b` | one forward for each later stage, then one of each in turns | min(m, p−i) |
| `interleaved` | 1F1B with v chunks in a loop: a v-th of the bubble, v times the sends | p + (p−1)/v at stage 0 |
| `zero_bubble_h1` | backward in two halves; weight gradients wait and fill the end | min(m, p) |
| `zero_bubble_h2` | ZB-H1 with twice the forwards ahead and twice the delay | min(m, 2p−1) |
| `zero_bubble_v` | halves in a vee of two chunks, each stage doing what it can at once | min(m, p) |

Sources: Huang et al. 2019, arXiv:1811.06965 (GPipe); Narayanan et al. 2019 and 2021, arXiv:2104.04473 section 2.2
(1F1B, interleaved); Qi et al. 2023, arXiv:2401.10241 (ZB-H1, ZB-H2, ZB-V). ZB-V is made here by a greedy rule under the
paper's limit of memory, not by its handcrafted order. No vee ends before (p−1)/2 forwards after its useful time, when
the last stage of the first leg has begun. This one does, or up to a forward later, at 2p and more micro-batches. Its
first stage is then busy to the end, where the paper's has ended before.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Kind = Literal["F", "B", "I", "W"]
"""Forward; backward; and the halves of backward: gradients of the input and of the weights."""


@dataclass(frozen=True)
class Action:
    """One action of a stage."""

    kind: Kind
    micro_batch: int
    chunk: int = 0


@dataclass(frozen=True)
class Schedule:
    """The order of each stage's actions."""

    orders: tuple[tuple[Action, ...], ...]
    chunks: int = 1
    placement: Literal["loop", "vee"] = "loop"

    @property
    def stages(self) -> int:
        """Number of stages."""
        return len(self.orders)

    def position(self, stage: int, chunk: int) -> int:
        """Position of a stage's chunk in the order of the layers."""
        backwards = self.placement == "vee" and chunk % 2
        return chunk * self.stages + (self.stages - 1 - stage if backwards else stage)


class _Counted:
    """A stage's order under construction, in which each kind of action takes the next micro-batch."""

    def __init__(self) -> None:
        self.actions: list[Action] = []

    def count(self, what: str) -> int:
        """Number of actions so far of a kind and chunk, such as ``F0``."""
        return sum(f"{one.kind}{one.chunk}" == what for one in self.actions)

    def add(self, what: str, times: int) -> None:
        """Append the kinds and chunks in `what`, the given number of times."""
        for one in what.split() * times:
            self.actions.append(Action(one[0], self.count(one), int(one[1])))  # type: ignore[arg-type]


def gpipe(stages: int, micro_batches: int) -> Schedule:
    """All forwards, then all backwards."""
    order = [*_all("F", micro_batches), *_all("B", micro_batches)]
    return Schedule((tuple(order),) * stages)


def one_f_one_b(stages: int, micro_batches: int) -> Schedule:
    """1F1B, the schedule of PipeDream-Flush and Megatron-LM."""
    orders = []
    for stage in range(stages):
        ahead = min(micro_batches, stages - 1 - stage)
        orders.append(_in_turns(list(_all("F", micro_batches)), list(_all("B", micro_batches)), ahead))
    return Schedule(tuple(orders))


def interleaved_1f1b(stages: int, micro_batches: int, chunks: int) -> Schedule:
    """Megatron-LM's interleaved 1F1B: groups of as many micro-batches as stages pass each chunk in turn.

    Raises `ValueError` if the number of micro-batches is not a multiple of the number of stages.
    """
    if micro_batches % stages:
        raise ValueError(
            f"interleaving {stages} stages needs a multiple of {stages} micro-batches, not {micro_batches}"
        )

    def nth(kind: Kind, index: int) -> Action:
        group, rest = divmod(index, stages * chunks)
        chunk, within = divmod(rest, stages)
        return Action(kind, group * stages + within, chunk if kind == "F" else chunks - 1 - chunk)

    total = micro_batches * chunks
    forwards, backwards = ([nth(kind, index) for index in range(total)] for kind in ("F", "B"))
    orders = []
    for stage in range(stages):
        ahead = min(total, 2 * (stages - 1 - stage) + (chunks - 1) * stages)
        orders.append(_in_turns(forwards, backwards, ahead))
    return Schedule(tuple(orders), chunks)


def zero_bubble_h1(stages: int, micro_batches: int) -> Schedule:
    """ZB-H1: 1F1B in which stage i delays its weights' gradients by i micro-batches, so that all hold equally many."""
    return _split_backward(stages, micro_batches, depth=1)


def zero_bubble_h2(stages: int, micro_batches: int) -> Schedule:
    """ZB-H2: twice as many forwards ahead as in ZB-H1, and weight gradients delayed twice as long."""
    return _split_backward(stages, micro_batches, depth=2)


def zero_bubble_v(stages: int, micro_batches: int) -> Schedule:
    """ZB-V: each stage runs the first possible of an input's gradient, a forward and a weight's gradient."""
    orders: list[list[Action]] = [[] for _ in range(stages)]
    counts: list[Counter[tuple[Kind, int]]] = [Counter() for _ in range(stages)]
    shape = Schedule(tuple(() for _ in range(stages)), 2, "vee")
    done: dict[Action, int] = {}
    """Time of each action, whose chunk is here the position among the layers."""
    time = 0
    while len(done) < 6 * stages * micro_batches:
        for stage, (order, count) in enumerate(zip(orders, counts, strict=True)):
            held = sum(count["F", chunk] - count["W", chunk] for chunk in (0, 1))
            # The upper leg of the vee is first, because the other stages wait for it.
            wanted: list[tuple[Kind, int]] = [("I", 0), ("I", 1), ("W", 1), ("W", 0)]
            wanted[2:2] = [("F", 1), ("F", 0)] if held < 2 * stages else []
            for kind, chunk in wanted:
                index = count[kind, chunk]
                action = Action(kind, index, shape.position(stage, chunk))
                if index < micro_batches and all(done.get(one, time) < time for one in _needs(action, 2 * stages)):
                    done[action] = time
                    count[kind, chunk] += 1
                    order.append(Action(kind, index, chunk))
                    break
        time += 1
    return Schedule(tuple(map(tuple, orders)), 2, "vee")


def zero_bubble_by_hand(stages: int, micro_batches: int) -> Schedule:
    """ZB-V in the order that torch's `ZBVZeroBubble` runs: warm-up, one of each in turns, and the rest."""
    whole = max(2 * stages - 1, micro_batches)  # length of the fixed warm-up; surplus micro-batches are left out
    orders = []
    for stage in range(stages):
        ahead = stages - stage
        order = _Counted()
        order.add("F0", 2 * ahead - 1)
        order.add("F1 F0", stage)
        order.add("F1 I1 W1", ahead)
        order.add("F0 I0 W0 F1 I1 W1", whole - order.count("F0"))
        order.add("I0 W0 F1 I1 W1", whole - order.count("F1"))
        order.add("I0 I1", stage)
        order.add("I0 W0", ahead)
        order.add("W1", whole - order.count("W1"))
        order.add("W0", whole - order.count("W0"))
        orders.append(tuple(one for one in order.actions if one.micro_batch < micro_batches))
    return Schedule(tuple(orders), 2, "vee")


def _needs(action: Action, places: int) -> list[Action]:
    """Actions that must be done before; the chunk is the position among the layers."""
    index, place = action.micro_batch, action.chunk
    if action.kind == "F":
        return [Action("F", index, place - 1)] if place else []
    if action.kind == "W":
        return [Action("I", index, place)]
    return [Action("F", index, place), *([Action("I", index, place + 1)] if place + 1 < places else [])]


def _split_backward(stages: int, micro_batches: int, depth: int) -> Schedule:
    orders = []
    for stage in range(stages):
        ahead, late = min(micro_batches, depth * (stages - 1 - stage)), depth * stage
        order: list[Action] = []
        for action in _in_turns(list(_all("F", micro_batches)), list(_all("B", micro_batches)), ahead):
            if action.kind == "F":
                order.append(action)
                continue
            order.append(Action("I", action.micro_batch))
            if action.micro_batch >= late:
                order.append(Action("W", action.micro_batch - late))
        order += [Action("W", index) for index in range(max(0, micro_batches - late), micro_batches)]
        orders.append(tuple(order))
    return Schedule(tuple(orders))


def _all(kind: Kind, micro_batches: int) -> Iterable[Action]:
    return (Action(kind, index) for index in range(micro_batches))


def _in_turns(forwards: list[Action], backwards: list[Action], ahead: int) -> tuple[Action, ...]:
    """The first `ahead` forwards, then one forward and one backward in turns, then the remaining backwards."""
    order = forwards[:ahead]
    for forward, backward in zip(forwards[ahead:], backwards, strict=False):
        order += [forward, backward]
    return tuple(order + backwards[len(forwards) - ahead :])
