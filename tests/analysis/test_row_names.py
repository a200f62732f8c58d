"""Short names of rows: what they leave out, what they keep, and that no two rows share one."""

import random
from collections.abc import Mapping, Sequence

import pytest

from assay.analysis.factors.layout import control_name, level_names, planned_names, row_names
from assay.records.study import AGAIN, BASELINE, ComparisonRecord
from support.comparisons import LABELS, TREATMENTS, record
from support.factorials import factorial, study
from support.swept import cut_short, in_two_sizes


def made(factors: Mapping[str, Sequence[str]], **fields: object) -> ComparisonRecord:
    return study(factorial(factors), lambda _: (1.0, 1.0, 1.0), seeds=1, **fields)


def named(factors: Mapping[str, Sequence[str]]) -> list[str]:
    """Names of all rows but both controls, in the order of the study."""
    return list(row_names(made(factors)).values())[:-2]


def test_techniques_are_joined_by_a_plus_and_leave_fields_out_that_all_uses_share() -> None:
    found = row_names(record(seeds=1))
    assert found == {**dict(zip(TREATMENTS, LABELS, strict=True)), BASELINE: BASELINE, AGAIN: AGAIN}


@pytest.mark.parametrize(
    ("stacks", "names"),
    [
        (["sgd:momentum=0.9"], ["SGD"]),
        (["lora:rank=4,alpha=8", "lora:rank=8,alpha=8"], ["lora 4", "lora 8"]),
        (["lora:rank=4,alpha=8", "lora:rank=8,alpha=16"], ["lora rank 4 alpha 8", "lora rank 8 alpha 16"]),
        (["gradient_accumulation:micro_batches=2+lion", "lion"], ["gradient_accumulation + lion", "lion"]),
        (["a name of its own", "placebo: gradient scaler"], ["a name of its own", "placebo: gradient scaler"]),
    ],
)
def test_fields_of_a_technique_are_said_where_its_uses_differ(stacks: list[str], names: list[str]) -> None:
    assert named({"optimizations": ["none", *stacks]}) == names


def test_a_row_is_named_by_what_it_changes() -> None:
    found = named({"model.context_length": ["64", "128"], "optimizations": ["none", "sgd"]})
    assert found == ["SGD", "context 128", "context 128 · SGD"]


def test_a_row_that_takes_the_techniques_of_the_control_away_says_so() -> None:
    assert named({"optimizations": ["lion", "none"]}) == ["no optimization"]


@pytest.mark.parametrize(
    ("key", "level", "name"),
    [
        ("training.batch_size", "24", "batch 24"),
        ("training.learning_rate", "6e-4", "rate 6e-4"),
        ("training.steps", "400", "400 steps"),
        ("model.n_layer", "12", "12 layers"),
        ("model.n_embd", "64", "width 64"),
        ("model.n_head", "4", "4 heads"),
        ("model.norm_position", "post", "norm position post"),
        ("warm-up", "without", "without warm-up"),
        ("tied_weights", "on", "tied weights"),
        ("tied_weights", "off", "tied weights off"),
        ("momentum", "0.5", "momentum 0.5"),
        ("shape", "context x2", "context × 2"),
        ("shape", "large", "large"),
        ("training.learning_rate=0.003", "on", "rate 0.003"),
        ("training.batch_size=4 training.learning_rate=3e-3", "on", "batch 4 · rate 3e-3"),
        ("training.batch_size=4 model.norm_position=post", "off", "batch 4 · norm position post off"),
        ("sgd:momentum=0.9", "on", "sgd momentum 0.9"),
        ("lion+lora:rank=4,alpha=0.5", "on", "lion + lora rank 4 alpha 0.5"),
        ("a=b", "large", "large"),
    ],
)
def test_a_level_has_the_name_that_one_says(key: str, level: str, name: str) -> None:
    assert named({key: ["default", level]}) == [name]


def test_a_setting_with_three_numbers_is_in_every_name() -> None:
    found = named({"training.learning_rate": ["1e-3", "3e-4", "6e-4"], "training.batch_size": ["8", "16"]})
    assert found == [
        "rate 1e-3 · batch 16",
        "rate 3e-4",
        "rate 3e-4 · batch 16",
        "rate 6e-4",
        "rate 6e-4 · batch 16",
    ]
    assert named({"training.learning_rate": ["1e-3", "3e-4", "6e-4"]}) == ["rate 3e-4", "rate 6e-4"]


def test_rows_that_would_share_a_name_keep_their_own() -> None:
    found = named({"inner": ["small", "large"], "outer": ["small", "large"]})
    assert found == ["inner=small, outer=large", "inner=large, outer=small", "large · large"]


@pytest.mark.parametrize("draw", range(30))
def test_no_two_rows_have_the_same_name(draw: int) -> None:
    rng = random.Random(draw)
    stacks = ["none", "lion", "sgd:momentum=0.9", "sgd:momentum=0", "lion+sdpa_attention", "placebo: scaler", "own"]
    keys = ["shape", "model.n_layer", "training.batch_size", "warm-up", "other.batch_size"]
    levels = ["2", "4", "8", "on", "off", "with", "large", "context x2", "default", "none", "lion"]
    factors = {key: rng.sample(levels, rng.randint(2, 3)) for key in rng.sample(keys, rng.randint(1, 2))}
    whole = made({**factors, "optimizations": rng.sample(stacks, rng.randint(2, 4))})
    found = row_names(whole)
    assert list(found)[:-2] == list(whole.treatments)
    assert len(set(found.values())) == len(found)
    assert all(name.strip() == name and name for name in found.values())


def test_rows_that_a_limit_of_time_held_back_have_their_names() -> None:
    whole = in_two_sizes()
    assert row_names(cut_short(whole, (whole.treatments[0], 0))) == row_names(whole)


def test_the_control_of_a_study_is_named_by_its_levels_without_those_that_say_nothing() -> None:
    factors = {
        "training.learning_rate": ["6e-4", "1e-3"],
        "shape": ["default", "large"],
        "optimizations": ["none", "lion"],
    }
    assert control_name(made(factors, name="rates")) == "rate 6e-4"
    assert control_name(made(factors)) == "", "a comparison's control is its base"


def test_levels_have_the_names_that_rows_are_made_of() -> None:
    found = level_names(made({"model.n_layer": ["2", "4"], "optimizations": ["none", "sgd:momentum=0.9"]}))
    assert found == {
        ("model.n_layer", "2"): "2 layers",
        ("model.n_layer", "4"): "4 layers",
        ("optimizations", "none"): "no optimization",
        ("optimizations", "sgd:momentum=0.9"): "SGD",
    }


def test_a_plan_has_the_names_that_its_record_will_have() -> None:
    made = in_two_sizes()
    planned = planned_names([one.cell for one in made.cells])
    named = row_names(made)
    assert planned == {name: named[name] for name in planned}
    assert any("=" in row and "=" not in name for row, name in planned.items())
