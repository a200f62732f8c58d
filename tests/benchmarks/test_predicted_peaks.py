"""The peaks that the benchmark holds: its list is the catalogue, and in this process its small shape keeps the bounds.

The middle shape, and what compiles, is marked `slow`.
"""

from pathlib import Path
from typing import Literal, get_args, get_origin

import pytest

from assay.api import configure
from assay.config import Run, Spec
from assay.data.tokenizers import CharTokenizer
from assay.errors import UsageError
from assay.estimator import estimate
from assay.hardware import Machine
from assay.optimizations import Unpredicted, catalogue, resolve
from support.random_data import RandomData
from support.runs import ON_ONE_DEVICE, marked
from support.steps import measured_peak

MACHINE = Machine(processor="any", cores=1, memory_bytes=2**34)
SHAPES = [pytest.param(0, id="4/128/64"), pytest.param(1, id="6/384/256", marks=pytest.mark.slow)]
STACKS = 6


def _marks(name: str) -> list[pytest.MarkDecorator]:
    """The update of adamw_8bit compiles itself, too."""
    return [pytest.mark.slow] if name == "adamw_8bit" else marked(name)


class CharacterData(RandomData):
    """Random tokens, and a tokenizer for what is read on the way."""

    def __init__(self, run: Run) -> None:
        from predicted_peaks import CHARACTERS  # type: ignore[import-not-found]

        super().__init__(run)
        self.tokenizer = CharTokenizer(CHARACTERS)


def error_of(shape: int, stack: str, folder: Path) -> float | None:
    """Of the predicted peak of a stack on one of the benchmark's shapes; None where there is none."""
    from predicted_peaks import SETTLED, SHAPES, configuration, document

    overrides, treatment = configuration(SHAPES[shape], stack, document(folder))
    run = configure(SETTLED[0], [*overrides, "device=cpu"], treatment or ())
    try:
        predicted = estimate(run, MACHINE).timeline.peak
    except UsageError:
        return None
    _, measured, instant = measured_peak(run, CharacterData(run))
    error = predicted.nbytes / measured - 1
    print(f"{stack or 'baseline'}: {predicted.nbytes} at {predicted}, {measured} at {instant}, {error:+.3%}")
    return error


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["", *(pytest.param(name, marks=_marks(name)) for name in ON_ONE_DEVICE)])
def test_the_peak_of_an_optimization_is_the_measured_one(name: str, shape: int, tmp_path: Path) -> None:
    from predicted_peaks import ALONE, alone

    stacks = alone([name]) if name else [""]
    errors = {one: error for one in stacks if (error := error_of(shape, one, tmp_path)) is not None}
    if not errors:
        pytest.skip("not predicted, or not on a CPU")
    assert max(map(abs, errors.values())) <= ALONE, errors


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("index", range(STACKS))
def test_the_peak_of_a_stack_is_the_measured_one(index: int, shape: int, tmp_path: Path) -> None:
    from predicted_peaks import STACKS, TOGETHER

    error = error_of(shape, STACKS[index], tmp_path)
    assert error is not None
    assert abs(error) <= TOGETHER


@pytest.mark.parametrize("name", list(catalogue()))
def test_the_list_has_every_optimization_of_one_device_and_every_choice_that_it_names(name: str) -> None:
    from predicted_peaks import alone

    listed = [Spec.parse(one) for one in alone() if one.partition(":")[0] == name]
    default = resolve(Spec(name=name))
    if default.axes():
        assert not listed
        return
    assert {resolve(one) for one in listed} >= {default}
    for field, info in catalogue()[name].model_fields.items():
        if get_origin(info.annotation) is Literal:
            assert {getattr(resolve(one), field) for one in listed} == set(get_args(info.annotation))


def test_stacks_are_of_three_or_more_and_possible_on_every_shape(tmp_path: Path) -> None:
    from predicted_peaks import SETTLED, SHAPES, configuration, document
    from predicted_peaks import STACKS as stacks

    assert len(stacks) == STACKS
    for shape in SHAPES:
        for stack in stacks:
            assert stack.count("+") >= 2
            overrides, treatment = configuration(shape, stack, document(tmp_path))
            estimate(configure(SETTLED[0], overrides, treatment), MACHINE)


@pytest.mark.parametrize(("measured", "code"), [(1040, 0), (1060, 1), (None, 1)])
def test_an_error_beyond_its_bound_and_a_failed_run_are_told_in_the_exit_code(
    measured: int | None, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import predicted_peaks
    from peaks_report import Row  # type: ignore[import-not-found]

    row = Row("lion", 0.05, 1000, measured, "backward: a", "update: b", failed=measured is None)
    refused = Row("fp8", 0.05, reason=str(Unpredicted("fp8")))
    monkeypatch.setattr(predicted_peaks, "rows", lambda *_: [row, refused])
    out = tmp_path / "peaks.md"
    assert predicted_peaks.main(["lion", "--shape", "4/128/64", "--out", str(out)]) == code
    assert "are not predicted" in out.read_text()
    once = out.read_text()
    predicted_peaks.main(["lion", "--shape", "6/384/256", "--out", str(out)])
    predicted_peaks.main(["lion", "--shape", "4/128/64", "--out", str(out)])
    assert out.read_text().startswith(once)
    assert out.read_text().count("\n## ") == 2
    assert "lion" in capsys.readouterr().out


def test_rows_take_the_places_of_the_same_treatments_and_the_others_stay() -> None:
    from peaks_report import Row, renewed  # type: ignore[import-not-found]

    first = renewed("", "a", [Row("lion", 0.05, 99, 100), Row("compile", 0.05, reason="not predicted")], "one")
    both = renewed(first, "b", [Row("", 0.05, 100, 100)], "two")
    again = renewed(both, "a", [Row("lion", 0.05, 100, 100), Row("adam", 0.05, 90, 100)], "three")
    of_a = again[again.index("## a") : again.index("## b")]
    names = [line.split(" | ")[0].removeprefix("| ") for line in of_a.splitlines() if line.startswith("| ")]
    assert names == ["treatment", "---", "lion", "compile", "adam"]
    assert "| lion | 100 B | 100 B | +0.00% |" in of_a
    assert "2 of 3 measured, largest error 10.00%, 1 beyond bounds" in of_a
    assert again[again.index("## b") :] == both[both.index("## b") :]
