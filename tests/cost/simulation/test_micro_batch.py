"""The player's rules, each on a tape of a few operations whose live bytes can be counted by hand."""

from dataclasses import replace

from assay.config import ModelConfig, Run, TrainingConfig
from assay.cost import Cost, Gradient, Instant, baseline, executed_flops, replay
from assay.cost.pipeline_schedules import Action, Kind, Schedule
from assay.cost.step_cost import Backward, Batch, OptimizerStep, Pipeline
from support.tapes import Makes, N, cost, operation, tensor

SUM, IN_BACKWARD, IN_UPDATE = 4, 3 * 4, 2 * 4
"""Bytes of a step's figures: the sum of the losses; the loss, its quotient and the gradient of that; sum and norm."""


def peak_of(phase: str, ledger: Cost) -> int:
    return max(moment.nbytes for moment in replay(ledger).instants if moment.phase == phase)


def test_a_result_lives_until_its_last_reader_has_run() -> None:
    chain = cost(operation("a", "w", "y"), operation("b", "y", "z"), operation("c", "z", "end"))
    # The weight (400) and two results at a time.
    assert peak_of("forward", chain) == 400 + 800
    assert replay(chain).saved_bytes == 0


def test_kept_tensors_live_until_their_node_has_run() -> None:
    kept = cost(operation("a", "w", "y", saves="y"), operation("b", "y", "z", saves="z"), operation("c", "z", "end"))
    assert replay(kept).saved_bytes == 800
    assert peak_of("forward", kept) == 400 + 3 * 400
    # The node of b: y and z are kept, beside two gradients.
    assert peak_of("backward", kept) == 400 + 800 + 400 + 400 + IN_BACKWARD


def test_the_same_storage_is_kept_once() -> None:
    twice = cost(operation("a", "w", "y", saves="y"), operation("b", "y", "z", saves="y"))
    assert replay(twice).saved_bytes == 400


def test_parameters_are_not_counted_as_kept() -> None:
    assert replay(cost(operation("a", "w", "y", saves="w"))).saved_bytes == 0


def test_a_recomputed_module_keeps_its_input_only() -> None:
    tape = (
        operation("a", "w", "y"),
        operation("b", "y", "z", saves="y z"),
        operation("c", "z", "u", saves="z u"),
        operation("d", "u", "end"),
    )
    plain = cost(*tape)
    inner = tuple(replace(one, site="block") if one.name in "bc" else one for one in tape)
    again = cost(*inner, backward=Backward(recomputed=("block",)))
    assert replay(plain).saved_bytes == 1200
    assert replay(again).saved_bytes == 400
    assert any(moment.phase == "recompute" for moment in replay(again).instants)


def test_a_recomputed_module_keeps_the_generators_state_until_its_backward_is_through() -> None:
    tape = (
        operation("a", "w", "y", saves="y"),
        operation("b", "y", "z", saves="y z"),
        operation("c", "z", "u", saves="z u"),
        operation("d", "u", "end"),
    )
    modules = {"a": "before", "b": "block", "c": "block", "d": "behind"}
    plain = cost(*(replace(one, site=modules[one.name]) for one in tape), backward=Backward(recomputed=("block",)))
    noisy = replace(plain, backward=replace(plain.backward, noise_bytes=5000))

    def highest(ledger: Cost) -> dict[tuple[str, str], int]:
        return {(moment.phase, moment.site): moment.nbytes for moment in replay(ledger).instants}

    there, here = highest(plain), highest(noisy)
    # In recomputation the state that the generator is at waits as well.
    more = {
        ("forward", "before"): 0,
        ("forward", "block"): 5000,
        ("forward", "behind"): 5000,
        ("backward", "behind"): 5000,
        ("recompute", "block"): 10_000,
        ("backward", "block"): 5000,
        ("backward", "before"): 0,
    }
    assert {part: here[part] - there[part] for part in more} == more
    assert replay(noisy).saved_bytes == replay(plain).saved_bytes
    assert replay(noisy).allocations == replay(plain).allocations + 2


def test_gradients_of_earlier_micro_batches_live_through_later_ones() -> None:
    tape = (operation("a", "w", "y", saves="y"), operation("b", "y", "end", saves="y"))
    once = cost(*tape)
    twice = replace(once, micro_batches=2)
    assert peak_of("forward", twice) == peak_of("forward", once) + 400 + SUM
    assert replay(replace(once, micro_batches=5)).allocations > replay(twice).allocations


def test_a_tied_weight_sums_two_gradients() -> None:
    tied = cost(operation("a", "w", "y"), operation("b", "y w", "end"))
    # b's gradient of w waits, a's arrives: two of them beside the weight.
    assert peak_of("backward", tied) == 400 + 3 * 400 + IN_BACKWARD


def test_nothing_is_added_into_a_gradient_that_comes_as_a_view() -> None:
    body, head = operation("a", "w", "y"), operation("b", "y w", "end")
    plain = cost(body, head)
    # b's gradient of w waits, a's arrives, and their sum is a third tensor.
    earlier = cost(body, replace(head, gradients=(Gradient.FRESH, Gradient.VIEWED)))
    assert replay(earlier).allocations == replay(plain).allocations + 1
    later = cost(replace(body, gradients=(Gradient.VIEWED,)), head)
    assert replay(later).allocations == replay(plain).allocations


def test_the_update_has_moments_of_its_own() -> None:
    ledger = cost(operation("a", "w", "end"), optimizer=OptimizerStep(Makes(Instant("AdamW", "w", 5000))))
    assert replay(ledger).peak.label == "update: AdamW"
    assert replay(ledger).peak.nbytes == 400 + 400 + 5000 + IN_UPDATE


def test_cutting_the_batch_divides_activations_and_keeps_the_rest() -> None:
    run = Run(
        model=ModelConfig(n_layer=2, n_head=2, n_embd=8, context_length=8, vocab_size=11),
        training=TrainingConfig(batch_size=4),
    )
    whole = baseline(run)
    parts = whole.cut(4)
    assert executed_flops(parts) == executed_flops(whole)
    assert parts.held_bytes == whole.held_bytes
    batch = sum(one.nbytes for one in (*whole.batch.tensors, *whole.tables))
    constant = 4  # the loss's total weight, a scalar
    assert replay(parts).saved_bytes - batch - constant == (replay(whole).saved_bytes - batch - constant) // 4


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
