import math
from pathlib import Path

import pytest
import torch

from assay.data import Prepared
from assay.training.checkpoints import checkpoint
from assay.training.evaluation import Evaluation
from assay.training.loop import Loop, train_step
from assay.training.stops import BudgetReached, Diverged, Interrupted, TargetReached
from support.runs import tiny
from support.steps import Watcher, loop_of, step_of


def watched(loop: Loop) -> Watcher:
    assert isinstance(loop.observer, Watcher)
    return loop.observer


def test_training_learns_the_corpus(corpus: Prepared, tmp_path: Path) -> None:
    run = tiny({"steps": 60, "learning_rate": 1e-2, "warmup_steps": 5})
    loop = loop_of(run, step_of(run, corpus), corpus, tmp_path)
    loop.advance(60)
    losses = [record.loss for record in watched(loop).records]
    assert losses[0] == pytest.approx(math.log(256), rel=0.02)
    assert losses[-1] < 3.2


def test_a_record_says_what_the_step_did(corpus: Prepared, tmp_path: Path) -> None:
    step = step_of(tiny(), corpus)
    record = train_step(step, 1)
    assert (record.step, record.tokens) == (1, 64)
    assert record.learning_rate == step.program.schedule(1) == step.optimizer.param_groups[0]["lr"]
    assert 0 < record.seconds < 10
    fresh = step_of(tiny(), corpus)
    fresh.program.gradients(fresh, fresh.program.batches(1, (0, 1)), 64)
    assert record.log_gradient_norm == math.log(fresh.program.gradient_norm(fresh).item())


def test_the_learning_rate_is_set_before_the_gradients(corpus: Prepared) -> None:
    seen: list[float] = []
    plain = step_of(tiny(), corpus)

    def spy(step, micro_batches, tokens):  # type: ignore[no-untyped-def]
        seen.append(step.optimizer.param_groups[0]["lr"])
        return plain.program.gradients(step, micro_batches, tokens)

    step = step_of(tiny(), corpus, gradients=spy)
    train_step(step, 0)
    train_step(step, 3)
    assert seen == [step.program.schedule(0), step.program.schedule(3)]


def test_the_loss_of_a_cut_batch_is_over_all_its_parts(corpus: Prepared) -> None:
    whole, cut_up = (train_step(step_of(tiny(), corpus, micro_batches=parts), 0) for parts in (1, 4))
    assert cut_up.loss == pytest.approx(whole.loss, rel=1e-6)
    assert cut_up.tokens == whole.tokens


def test_evaluations_and_checkpoints_come_when_due_and_not_at_the_last_step(corpus: Prepared, tmp_path: Path) -> None:
    run = tiny({"steps": 6, "eval_interval": 2, "checkpoint_interval": 3})
    loop = loop_of(run, step_of(run, corpus), corpus, tmp_path)
    loop.advance(6)
    assert [one.step for one in watched(loop).evaluations] == [2, 4]
    assert [place.name for place in checkpoint.complete(tmp_path)] == ["step-00000003"]
    assert watched(loop).phases == ["evaluation", "checkpoint", "evaluation"]
    loop.evaluate()
    loop.evaluate()
    loop.checkpoint()
    loop.checkpoint()
    assert [one.step for one in watched(loop).evaluations] == [2, 4, 6]
    assert watched(loop).phases[3:] == ["evaluation", "checkpoint"]


def test_steps_to_keep_are_saved_also_where_figures_are_read_late(corpus: Prepared, tmp_path: Path) -> None:
    run = tiny({"steps": 9, "keep_steps": [4, 7, 9], "read_every": 3})
    loop = loop_of(run, step_of(run, corpus), corpus, tmp_path)
    loop.advance(9)
    assert [place.name for place in checkpoint.complete(tmp_path)] == ["step-00000007", "step-00000004"]


def test_a_budget_of_tokens_ends_after_the_step_that_reaches_it(corpus: Prepared, tmp_path: Path) -> None:
    run = tiny({"steps": 6, "tokens": 150})
    loop = loop_of(run, step_of(run, corpus), corpus, tmp_path)
    with pytest.raises(BudgetReached, match="150 tokens is reached after 3 steps"):
        loop.advance(6)
    assert (loop.position.step, loop.position.tokens) == (3, 192)


def test_a_budget_of_seconds_counts_what_earlier_processes_spent(corpus: Prepared, tmp_path: Path) -> None:
    run = tiny({"steps": 6, "seconds": 1000.0})
    loop = loop_of(run, step_of(run, corpus), corpus, tmp_path)
    loop.advance(1)
    loop.position.seconds += 999.9999
    with pytest.raises(BudgetReached, match=r"1000 seconds is reached after 1 step$"):
        loop.advance(5)


def test_a_target_loss_ends_the_run_at_the_evaluation_that_reaches_it(corpus: Prepared, tmp_path: Path) -> None:
    run = tiny({"steps": 6, "eval_interval": 2, "target_loss": 100.0})
    loop = loop_of(run, step_of(run, corpus), corpus, tmp_path)
    with pytest.raises(TargetReached, match="target loss reached"):
        loop.advance(6)
    assert loop.position.step == 2


def test_an_interrupt_ends_after_a_whole_step(corpus: Prepared, tmp_path: Path) -> None:
    loop = loop_of(tiny(), step_of(tiny(), corpus), corpus, tmp_path)
    watched(loop).stop_after = 2
    with pytest.raises(Interrupted, match="after 2 steps"):
        loop.advance(6)
    assert loop.position.step == 2


def test_an_evaluation_that_an_interrupt_cut_off_is_made_up(corpus: Prepared, tmp_path: Path) -> None:
    run = tiny({"steps": 6, "eval_interval": 2})
    loop = loop_of(run, step_of(run, corpus), corpus, tmp_path)
    watched(loop).stop_after = 2
    with pytest.raises(Interrupted):
        loop.advance(6)
    assert watched(loop).evaluations == []
    watched(loop).stop_after = None
    loop.between_steps()
    assert [one.step for one in watched(loop).evaluations] == [2]


def test_a_validation_loss_that_is_not_finite_is_a_divergence(corpus: Prepared, tmp_path: Path) -> None:
    loop = loop_of(tiny(), step_of(tiny(), corpus), corpus, tmp_path)
    loop.position.evaluation = Evaluation(step=0, loss=math.nan, targets=1, bytes_per_token=1.0)
    with pytest.raises(Diverged, match="validation loss after 0 steps is nan"):
        loop.evaluate()


def test_equal_seeds_train_equally_and_unlike_ones_do_not(corpus: Prepared) -> None:
    def losses(seed: int) -> list[float]:
        run = tiny(dropout=0.1).model_copy(update={"seed": seed})
        step = step_of(run, corpus)
        return [train_step(step, index).loss for index in range(3)]

    torch.manual_seed(99)
    assert losses(1) == losses(1) != losses(2)
