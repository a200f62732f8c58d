"""The number of a row: one colour a technique in all studies, and no two points alike within one."""

from assay.records.study import BASELINE, ComparisonRecord
from assay.report.kit.drawing import COLOURS, SHAPES, row_numbers, series
from support.swept import factorial_record


def study(*stacks: str, shapes: tuple[str, ...] = ("2",)) -> ComparisonRecord:
    return factorial_record({"model.n_layer": shapes, "optimizations": ("none", *stacks)}, lambda _: (1.0, 1.0, 1.0))


def colours(record: ComparisonRecord) -> dict[str, str]:
    """Colour of each row by its label, the baseline's left out."""
    return {name: series(number) for name, number in row_numbers(record).items() if name != BASELINE}


def test_a_technique_has_the_same_colour_in_whatever_order_and_company() -> None:
    one = colours(study("sgd:momentum=0", "bf16_mixed"))
    other = colours(study("lion", "activation_checkpointing", "bf16_mixed", "sgd"))
    for technique in ("bf16_mixed", "sgd"):
        (first,), (second,) = ({found[row] for row in found if technique in row} for found in (one, other))
        assert first == second
    assert len(set(other.values())) == 4


def test_rows_of_one_technique_share_its_colour_and_differ_in_shape() -> None:
    found = row_numbers(study("bf16_mixed", shapes=("2", "4")))
    rows = [name for name in found if "bf16" in name]
    assert len(rows) == 2
    assert len({series(found[name]) for name in rows}) == 1
    assert len({found[name] % SHAPES for name in rows}) == 2


def test_as_many_techniques_as_colours_have_all_of_them_and_a_stack_has_another_than_its_parts() -> None:
    names = ("adamw_8bit", "adamw_bf16_state", "cautious_decay", "foreach_adamw", "fused_adamw", "lion", "muon", "sgd")
    assert len(set(colours(study(*names)).values())) == COLOURS
    stacked = colours(study("bf16_mixed", "sdpa_attention", "bf16_mixed+sdpa_attention"))
    assert len(set(stacked.values())) == 3


def test_the_baseline_has_a_colour_of_its_own() -> None:
    found = row_numbers(study("sgd"))
    assert found[BASELINE] == 0
    assert series(0) not in colours(study("sgd")).values()
