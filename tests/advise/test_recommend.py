"""Advice from times that were measured: they decide, they are marked, and hindrances are named."""

from dataclasses import replace
from functools import cache
from math import log

import pytest

from assay.advise.advice import Advice
from assay.advise.problem import Limits, Problem
from assay.advise.recommend import advice, warnings
from assay.config import ModelConfig, ResolvedRun
from assay.estimator.timing.step_time import PEAKS_FACTOR, digest
from assay.hardware.step_times import StepTimes, depths
from assay.optimizations import resolve_run
from assay.report.recommend import AdviceView, kept_order
from support.advice import HERE, PLENTY, small

RUN = small()


def _with(stack: str) -> ResolvedRun:
    return resolve_run(RUN.model_copy(update={"optimizations": _specs(stack)}))


def _specs(stack: str) -> tuple[object, ...]:
    from assay.config.loading import stack as parsed

    return tuple(parsed([stack])) if stack else ()


def _answer(**seconds: float) -> Advice:
    """Return the answer where some stacks were timed; a name has `__` for a plus sign, `bare` is no technique."""
    times = {}
    for name, each in seconds.items():
        key = digest(_with("" if name == "bare" else name.replace("__", "+")), "cpu")
        assert key is not None
        at = depths(RUN.model.n_layer)
        times[key] = StepTimes(depths=at, turns=tuple((each, each) for _ in range(3)))
    here = HERE.model_copy(update={"step_times": times})
    problem = _problem()
    return advice(problem, problem.rank(here), "any", "demo", absent=False)


@cache
def _problem() -> Problem:
    """Return the problem whose needs and rooflines all answers share: they hang on no time that was measured."""
    return Problem(RUN, HERE, Limits(PLENTY))


def test_a_stack_that_was_timed_to_be_slow_is_not_recommended() -> None:
    alone = _answer()
    assert {"sdpa_attention", "bf16_mixed"} <= set(alone.recommended.stack) | {"bf16_mixed"}
    assert not alone.recommended.timed
    assert alone.recommended.margin == pytest.approx(log(PEAKS_FACTOR))
    slow = {"bare": 1.0, "sdpa_attention": 0.9, "bf16_mixed": 0.9, "bf16_full": 5.0, "sdpa_attention__bf16_mixed": 3.0}
    found = _answer(**slow, fp16_mixed=9.0, fp16_full=9.0)
    assert not {"bf16_full", "fp16_mixed", "fp16_full"} & set(found.recommended.stack)
    assert not {"sdpa_attention", "bf16_mixed"} <= set(found.recommended.stack)
    assert found.counts.timed == 5  # weights in 16 bits are no candidates
    (warning,) = found.warnings
    assert warning.startswith("sdpa_attention and bf16_mixed hinder each other here: together they take 3.7 × as long")


def test_the_baseline_has_its_measured_time_and_margin() -> None:
    found = _answer(bare=2.0)
    assert found.baseline.timed
    assert found.baseline.seconds == 2.0
    assert found.baseline.margin is not None
    assert found.baseline.margin < 0.1 < (found.recommended.margin or 0)
    text = " ".join(str(block) for block in AdviceView(found).blocks())
    assert "One stack was timed here, and the recommended one was not timed itself" in text


def _speed(ratio: float) -> str:
    found = _answer()
    bare = replace(found.recommended, seconds=ratio * found.recommended.seconds)
    view = AdviceView(replace(found, baseline=bare))
    return next(str(block) for block in view.blocks() if "without it" in str(block))


def test_a_speed_is_between_the_tokens_of_the_longest_and_of_the_shortest_step() -> None:
    found = _answer()
    best = replace(found.recommended, tokens=1000, seconds=1.0, margin=0.4)
    facts = " ".join(str(block) for block in AdviceView(replace(found, recommended=best)).blocks())
    assert "1.00k (714 to 1.67k) tokens/s" in facts  # 1000/1.4 and 1000/0.6


def test_a_large_gain_of_speed_is_a_multiple_and_a_small_one_a_share() -> None:
    assert " 10.5 × the " in _speed(10.5)
    assert ", +50.0 % against " in _speed(1.5)


def test_an_order_holds_if_no_later_stack_is_noticeably_faster() -> None:
    found = _answer()
    titles = list(dict.fromkeys(one.title for one in found.ranked))[:3]
    assert kept_order(found, dict(zip(titles, (1.0, 1.1, 1.2), strict=True)))
    assert kept_order(found, dict(zip(titles, (1.04, 1.0, 1.2), strict=True)))
    assert not kept_order(found, dict(zip(titles, (1.0, 1.3, 1.1), strict=True)))


def test_leaving_one_out_is_the_candidate_without_it() -> None:
    found = _answer()
    for part in found.parts:
        rest = set(found.recommended.stack) - {part.element}
        assert part.without is None or set(part.without.stack) == rest


def test_techniques_that_train_differently_replace_what_excludes_them() -> None:
    found = _answer()
    assert any("lion" in one.stack for one in found.different)
    assert all(one.numerics.name == "DIFFERENT_TRAINING" for one in found.different)
    smaller = next(one for one in found.different if "smaller_batch" in one.stack)
    assert smaller.tokens == found.baseline.tokens // 2


def _warned(on_gpu: bool, **shape: int) -> list[str]:
    whole = {"n_embd": 128, "n_head": 2, "vocab_size": 64, "n_hidden": 512}
    return list(warnings(ModelConfig(**(whole | shape)), on_gpu))


def test_whole_tiles_are_not_warned_of() -> None:
    assert _warned(True) == _warned(False) == []


def test_widths_and_vocabularies_that_are_no_whole_tiles_are_named_with_the_next_that_is() -> None:
    (sentence,) = _warned(False, vocab_size=50257)
    assert "50,257" in sentence
    assert "model.vocab_size=50304" in sentence
    (sentence,) = _warned(True, n_hidden=520)
    assert "the MLP's width is 520, no multiple of 64" in sentence
    assert "576" in sentence
    assert _warned(False, n_hidden=520) == []
    assert any("model.n_embd is 100, no multiple of 8" in one for one in _warned(False, n_embd=100))
