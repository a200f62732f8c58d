"""Options that a verb would ignore are refused in one sentence, whichever verb it is, before anything is done."""

import pytest

from assay.cli.options import arguments, check_used, given_options, only_one
from assay.errors import UsageError
from cli.conftest import Assay


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("recommend demo --device a100 --calibrate 30", "leave out --calibrate or --device"),
        ("recommend demo device=cpu --device a100", "device=cpu and --device a100 both say where the step runs"),
        ("capacity device=cpu --device a100", "device=cpu and --device a100 both say where the step runs"),
        ("measure train.py:build --numerics exact", "--numerics is used with --against only"),
        ("optimizations --measured mine.json", "--measured is used with NAME or --table or --json only"),
        ("scaling predict --params 1B --tokens 20B --draws 50", "--draws is used with POINTS.csv only"),
        ("scaling predict --params 1B --tokens 20B --seed 0", "--seed is used with POINTS.csv only"),
        ("scaling predict --params 1B --tokens 20B --drop 2", "--drop is used with POINTS.csv only"),
        ("scaling predict points.csv --source me --flops 1e20", "--source is not used with POINTS.csv"),
        ("scaling batch --noise 512 --micro-batches 4", "--micro-batches is used with RUN only"),
        ("scaling batch --loss 3.2 --sequences 4", "--sequences is used with RUN only"),
        ("scaling batch last --noise-error 3", "a standard error is that of a noise scale; give both"),
        ("scaling run --plan --executor slurm", "--executor is not used with --plan"),
        ("scaling run --plan --page plan.html", "--page is not used with --plan"),
    ],
)
def test_an_option_without_effect_is_refused(assay: Assay, line: str, says: str) -> None:
    said = assay(*line.split())
    assert said.code == 2
    assert says in said.sentence()


def test_options_that_belong_together_are_left_alone(assay: Assay) -> None:
    assert assay("capacity", "demo", "device=cuda", "--device", "t4", "--memory", "2GB").code == 0
    assert assay("scaling", "predict", "--law", "kaplan-size", "--params", "1B", "--source", "Kaplan 2020").code == 0


def test_given_options_are_those_that_differ_from_nothing() -> None:
    options = {"--one-more": 0, "--two": None, "--three": False, "--four": "", "--five": []}
    assert given_options(options) == ["--one-more", "--four"]
    assert arguments(options, "--one-more", "--two") == {"one_more": 0}


def test_one_mode_is_chosen() -> None:
    assert (only_one([]), only_one(["--a"])) == ("", "--a")
    with pytest.raises(UsageError, match="--a and --b ask two questions"):
        only_one(["--a", "--b", "--c"])


def test_an_option_that_no_mode_lists_is_free() -> None:
    check_used("--a", {"--a": ("--x",), "": ()}, {"--x": 1, "--free": True})
