"""A backward cut in two, on a tape of four operations whose live bytes can be counted by hand."""

from dataclasses import replace

from assay.cost import Cost, Gradient, replay
from assay.cost.parts import Batch, Pipeline
from assay.cost.pipeline.schedules import Action, Kind, Schedule
from support.tapes import N, cost, operation, tensor

TAPE = (
    operation("first", "x w", "a", saves="x"),
    operation("middle", "a", "b", saves="a"),
    operation("last", "b w2", "c", saves="b"),
    operation("top", "c", "d", saves="d"),
)
"""Two operations with weights, one between them and one above."""


def staged(*kinds: Kind, comes_in: Gradient = Gradient.FRESH) -> Cost:
    """One stage and one micro-batch, whose input is another's: it lies in a buffer that is not counted here."""
    first, *rest = TAPE
    first = operation("first", "x w", "a", saves="x", how=comes_in)
    order = tuple(Action(kind, 0) for kind in kinds)
    pipeline = Pipeline((("site",),), Schedule((order,)))
    return cost(first, *rest, parameters="w w2", batch=Batch((tensor("x"),)), pipeline=pipeline)


def peak(ledger: Cost) -> float:
    return max(one.nbytes for one in replay(ledger).instants if one.phase == "backward") / (4 * N)


def test_a_whole_backward_frees_as_it_goes() -> None:
    # Two weights, a, b, and d, which the stage keeps; the gradients of c, b and w2.
    assert peak(staged("F", "B")) == 8


def test_the_halves_keep_what_weights_need() -> None:
    # Beside two weights, a, b, d: the gradients of c, a and x, which wait, and one weight's.
    assert peak(staged("F", "I", "W")) == 9


def test_tensors_above_all_weights_go_after_the_first_half() -> None:
    """Else its extra result would be there beside the weights' gradients."""
    top = operation("top", "c", "d", saves="d noise")
    noisy = replace(top, extras=(tensor("noise"),))
    ledger = staged("F", "I", "W")
    assert peak(replace(ledger, tape=(*ledger.tape[:-1], noisy))) == 9


def test_the_first_stage_of_all_has_nothing_to_hand_back_so_its_backward_is_whole() -> None:
    halves, whole = (staged(*kinds, comes_in=Gradient.NONE) for kinds in (("F", "I", "W"), ("F", "B")))
    assert replay(halves).instants == replay(whole).instants
