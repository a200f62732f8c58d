"""Options that `assay estimate` had are answered with the command of the verb that has them, in the user's words."""

import shlex

import pytest

from assay.cli.estimate import MOVED
from cli.conftest import Assay


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("gpt2-124m --nodes 4", "--nodes is asked of assay plan now: assay plan gpt2-124m --nodes 4"),
        (
            "gpt2-1558m training.batch_size=512 --gpus-per-node=8 --gpu h100 --with fully_sharded --json",
            "--gpus-per-node is asked of assay plan now: "
            "assay plan gpt2-1558m training.batch_size=512 --gpus-per-node=8 --gpu h100 --with fully_sharded --json",
        ),
        (
            "gpt2-124m --inference --device l4 --bits 8",
            "--inference is asked of assay inference now: assay inference gpt2-124m --device l4 --bits 8",
        ),
        ("demo --bits 8", "--bits is asked of assay inference now: assay inference demo --bits 8"),
        (
            "gpt2-124m --tokens 10B --price 2.5",
            "--tokens is asked of assay cost now: assay cost gpt2-124m --tokens 10B --price 2.5",
        ),
        ("demo --mfu 0.4", "--mfu is asked of assay cost now: assay cost demo --mfu 0.4 --tokens COUNT"),
        ("--accuracy --page x.html", "--accuracy is asked of assay accuracy now: assay accuracy --page x.html"),
        ("'my model.yaml' --gpu h200", "--gpu is asked of assay plan now: assay plan 'my model.yaml' --gpu h200"),
        (
            "--inference --tokens 1B",
            "--inference is asked of assay inference now, and --tokens of assay cost; ask each alone",
        ),
    ],
)
def test_an_option_that_moved_names_its_command(assay: Assay, line: str, says: str) -> None:
    said = assay("estimate", *shlex.split(line))
    assert (said.code, said.out, said.sentence()) == (2, "", says)


@pytest.mark.parametrize(
    "line",
    [
        "gpt2-124m training.batch_size=16 --with data_parallel --nodes 1 --json",
        "demo --inference --device l4 --json",
        "demo --tokens 1B --devices 2 --json",
        "--accuracy --json",
    ],
)
def test_the_command_that_is_named_answers(assay: Assay, line: str) -> None:
    named = assay("estimate", *line.split()).sentence().partition(" now: assay ")[2]
    assert assay(*shlex.split(named)).code == 0


def test_every_option_that_moved_is_one_of_its_verb_or_its_name(assay: Assay) -> None:
    for option, verb in MOVED.items():
        assert option == f"--{verb}" or f"{option} " in assay(verb, "--help").out


def test_words_behind_two_dashes_are_no_options(assay: Assay) -> None:
    assert "now: assay" not in assay("estimate", "--", "--nodes").sentence()
