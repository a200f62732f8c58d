import pytest

from assay.config import load
from assay.errors import UsageError
from assay.optimizations import resolve_run
from assay.records.study import AGAIN, BASELINE
from support.designs import design

BASE = load("demo")


def test_every_treatment_at_every_seed_and_the_baseline_twice() -> None:
    cells = design(BASE, ["sdpa_attention", "bf16_mixed+sdpa_attention"], seeds=2)
    assert [(cell.seed, cell.treatment) for cell in cells] == [
        (seed, name) for seed in (0, 1) for name in (BASELINE, AGAIN, "sdpa_attention", "bf16_mixed+sdpa_attention")
    ]
    assert all(cell.run.seed == cell.seed for cell in cells)
    assert len({cell.name for cell in cells}) == len(cells)


def test_the_two_baselines_are_the_same_run_with_everything_off() -> None:
    first, again, *_ = design(BASE, ["sdpa_attention"], seeds=1)
    assert first.run == again.run
    assert first.run.optimizations == ()


def test_seeds_follow_the_configured_one() -> None:
    cells = design(load("demo", ["seed=7"]), ["bf16_mixed"], seeds=3)
    assert sorted({cell.seed for cell in cells}) == [7, 8, 9]


def test_treatments_differ_from_the_baseline_in_their_optimizations_only() -> None:
    *_, stack = design(BASE, ["sdpa_attention + gradient_accumulation:micro_batches=4"], seeds=1)
    assert stack.treatment == "sdpa_attention+gradient_accumulation:micro_batches=4"
    assert [str(spec) for spec in stack.run.optimizations] == [
        "sdpa_attention:backend=auto",
        "gradient_accumulation:micro_batches=4",
    ]
    assert stack.run.model_copy(update={"optimizations": ()}) == resolve_run(BASE)


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        ([], "nothing to compare"),
        ([""], "names no treatment"),
        (["sdpa_attention", "sdpa_attention"], "listed twice"),
        (["bf16_mixed+sdpa_attention", "sdpa_attention+bf16_mixed"], "listed twice"),
        (["activation_checkpointing", "activation_checkpointing:every=1"], "listed twice"),
        (["sdpa_attention+sdpa_attention"], "listed twice"),
        (["sdpa_atention"], "did you mean 'sdpa_attention'"),
        (["activation_checkpointing:evry=1"], "did you mean 'every'"),
        (["activation_checkpointing:every=0"], "every"),
    ],
)
def test_an_impossible_comparison_is_refused_in_one_sentence(texts: list[str], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        design(BASE, texts, seeds=1)


def test_a_base_with_optimizations_is_no_baseline() -> None:
    base = load("demo", ["optimizations=[sdpa_attention]"])
    with pytest.raises(UsageError, match="every optimization off"):
        design(base, ["bf16_mixed"], seeds=1)


def test_at_least_one_seed() -> None:
    with pytest.raises(UsageError, match="at least one seed"):
        design(BASE, ["bf16_mixed"], seeds=0)
