import math
import statistics
from collections.abc import Iterable, Iterator

import pytest
import torch

from assay.config import Run
from assay.data import Prepared, validation_windows
from assay.step.program import MicroBatch, Precision, Step
from assay.training.batches import validation_batches
from assay.training.evaluation import Evaluation, evaluate, standard_error, summed_evaluation
from support.runs import tiny
from support.steps import step_of


def evaluation(run: Run, step: Step, corpus: Prepared, rows: int) -> Evaluation:
    def windows() -> Iterator[MicroBatch]:
        for ids, targets in validation_windows(corpus.validation, run.model.context_length, rows):
            yield torch.from_numpy(ids), torch.from_numpy(targets)

    return evaluate(step, windows, corpus.bytes_per_token, 0)


def test_the_loss_is_the_mean_over_every_target_whatever_the_batch_size(corpus: Prepared) -> None:
    run = tiny()
    step = step_of(run, corpus)
    found = [evaluation(run, step, corpus, rows) for rows in (1, 3, 7)]
    assert {one.targets for one in found} == {len(corpus.validation) - 1}
    losses = [one.loss for one in found]
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-6)
    cut_up = evaluation(run, step_of(run, corpus, micro_batches=2), corpus, 7)
    assert cut_up.loss == pytest.approx(losses[0], rel=1e-6)
    assert cut_up.targets == found[0].targets


def test_the_window_in_which_the_text_ends_is_filled_in_and_what_fills_it_does_not_count(corpus: Prepared) -> None:
    run = tiny({"eval_batches": None})
    step, length = step_of(run, corpus), run.model.context_length
    assert (len(corpus.validation) - 1) % length
    windows, sample = validation_batches(run, corpus, torch.device("cpu"))
    assert {tuple(side.shape[1:]) for rows in windows() for side in rows} == {(length,)}
    filled, as_it_is = evaluate(step, windows, 1.0, 0, sample), evaluation(run, step, corpus, run.training.batch_size)
    assert filled.targets == as_it_is.targets == len(corpus.validation) - 1
    assert filled.loss == pytest.approx(as_it_is.loss, rel=1e-6)


def test_an_untrained_model_knows_nothing(corpus: Prepared) -> None:
    run = tiny(init_std=1e-6)
    found = evaluation(run, step_of(run, corpus), corpus, 4)
    assert found.loss == pytest.approx(math.log(256), rel=1e-4)
    assert found.perplexity == pytest.approx(256, rel=1e-3)
    assert found.bits_per_byte == pytest.approx(8, rel=1e-3)


def test_bits_are_per_byte_of_the_text_not_per_token() -> None:
    assert Evaluation(step=0, loss=math.log(2) * 6, targets=1, bytes_per_token=3.0).bits_per_byte == pytest.approx(2)


def test_dropout_is_off_and_neither_gradients_nor_noise_are_touched(corpus: Prepared) -> None:
    run = tiny(dropout=0.5)
    step = step_of(run, corpus)
    before = torch.get_rng_state()
    first, second = (evaluation(run, step, corpus, 4) for _ in range(2))
    assert first == second
    assert torch.equal(before, torch.get_rng_state())
    assert all(part.training for part in step.parts)
    assert all(parameter.grad is None for _, parameter in step.named_parameters())


def test_forward_contexts_are_active(corpus: Prepared) -> None:
    run = tiny()
    plain = evaluation(run, step_of(run, corpus), corpus, 4)
    low = step_of(run, corpus, precision=Precision((lambda: torch.autocast("cpu", dtype=torch.bfloat16),)))
    mixed = evaluation(run, low, corpus, 4)
    assert mixed.loss != plain.loss
    assert mixed.loss == pytest.approx(plain.loss, rel=1e-2)


def test_a_sample_has_a_standard_error_and_the_whole_split_has_none(corpus: Prepared) -> None:
    run = tiny({"eval_batches": 3})
    windows, sample = validation_batches(run, corpus, torch.device("cpu"))
    part = evaluate(step_of(run, corpus), windows, 1.0, 0, sample)
    assert (sample.batches, part.targets) == (3, 3 * 4 * 16)
    assert part.split_targets == len(corpus.validation) - 1
    assert part.standard_error is not None
    assert 0 < part.standard_error < part.loss
    run = tiny({"eval_batches": None})
    windows, sample = validation_batches(run, corpus, torch.device("cpu"))
    whole = evaluate(step_of(run, corpus), windows, 1.0, 0, sample)
    assert whole.targets == whole.split_targets
    assert whole.standard_error == 0


def test_the_standard_error_is_the_spread_of_sampled_losses() -> None:
    """Of many samples drawn from one population, against the mean of what each says of itself."""
    generator = torch.Generator().manual_seed(0)
    population = torch.rand(1000, generator=generator).double()
    losses, errors = [], []
    for _ in range(400):
        chosen = population[torch.randperm(1000, generator=generator)[:200]].view(10, 20).sum(1).tolist()
        losses.append(sum(chosen) / 200)
        errors.append(standard_error([(loss, 20) for loss in chosen], 0.2) or 0.0)
    assert statistics.fmean(errors) == pytest.approx(statistics.stdev(losses), rel=0.1)
    assert standard_error([(3.0, 2)], 0.5) is None


def test_batches_are_evaluated_in_at_most_ten_groups(corpus: Prepared) -> None:
    run = tiny({"eval_batches": None, "batch_size": 1})
    windows, sample = validation_batches(run, corpus, torch.device("cpu"))
    calls: list[int] = []

    def counted(step: Step, batches: Iterable[MicroBatch]) -> tuple[float, int]:
        calls.append(0)
        return summed_evaluation(step, _tally(batches))

    def _tally(batches: Iterable[MicroBatch]) -> Iterator[MicroBatch]:
        for batch in batches:
            calls[-1] += 1
            yield batch

    evaluate(step_of(run, corpus, evaluate=counted), windows, 1.0, 0, sample)
    assert sample.batches > 20
    assert len(calls) <= 10
    assert sum(calls) == sample.batches
    assert len(set(calls[:-1])) == 1
