"""`assay absent`: the list of devices, wrong words, and the answer as text and JSON."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.absent.gpus import ABSENT
from assay.absent.launch import Launched
from assay.records.status import Exit
from cli.conftest import Assay
from support.absent import answer, observation


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the function behind the verb is asked; it answers with stored findings."""
    calls: list[dict[str, Any]] = []

    def run_absent(command: Any, device: Any, **options: Any) -> Launched:
        options.pop("tell")
        calls.append({"command": command, "device": device.name, **options})
        return Launched(0, (observation(),))

    monkeypatch.setattr("assay.absent.launch.run_absent", run_absent)
    monkeypatch.setattr("assay.absent.ranks_answer.run_absent", run_absent)
    return calls


def test_without_a_device_all_are_listed(assay: Assay) -> None:
    assert [line.split("\t")[0] for line in assay("absent").out.splitlines()[1:]] == list(ABSENT)


def test_words_after_two_dashes_are_the_command(assay: Assay, asked: list[dict[str, Any]]) -> None:
    words = ("h100", "--steps", "3", "--devices", "2", "--read", "a.py:3=7", "--", "python", "train.py", "--steps", "9")
    said = assay("absent", *words)
    assert said.code == 0
    assert said.out.startswith("It fits one NVIDIA H100 80GB HBM3")
    (call,) = asked
    assert call["command"] == ["python", "train.py", "--steps", "9"]
    assert (call["count"], call["steps"], call["reads"][0].line) == (2, 3, 3)


def test_times_are_asked_of_the_observer_only_if_they_are_wanted(assay: Assay, asked: list[dict[str, Any]]) -> None:
    for words in ((), ("--times",)):
        assert assay("absent", "h100", *words, "--", "python", "train.py").code == 0
    assert [call["variables"] for call in asked] == [{}, {"ASSAY_ABSENT_TIMES": "1"}]


@pytest.mark.parametrize(
    ("words", "tried"), [(("--compare-allocators",), 5), (("--allocator", "expandable_segments:True"), 2)]
)
def test_allocators_are_compared_by_a_run_for_each(
    assay: Assay, asked: list[dict[str, Any]], words: tuple[str, ...], tried: int
) -> None:
    said = assay("absent", "h100", "--steps", "3", *words, "--json", "-", "--", "python", "train.py")
    assert [call["variables"] for call in asked[:2]] == [{}, {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}]
    assert len(asked) == len(said.value["by_settings"]) == tried
    assert {call["steps"] for call in asked} == {3}
    assert assay("absent", "h100", *words, "--", "python", "train.py").out.startswith("None of")


def test_every_chosen_rank_is_run_with_its_variables(assay: Assay, asked: list[dict[str, Any]]) -> None:
    said = assay("absent", "h100", "--ranks", "16", "--rank", "1,9", "--", "python", "train.py")
    assert said.code == 0
    assert said.out.startswith("Of 16 ranks, ranks 1, 9 were run, and each fits one NVIDIA H100 80GB HBM3")
    places = [(call["count"], call["variables"]["RANK"], call["variables"]["LOCAL_RANK"]) for call in asked]
    assert places == [(8, "1", "1"), (8, "9", "1")]


def test_a_dash_prints_json_alone(assay: Assay, asked: list[dict[str, Any]]) -> None:
    value = assay("absent", "h100", "--json", "-", "--", "python", "train.py").value
    assert value == answer(observation()).to_dict() | {"processes": value["processes"]}


def test_a_file_is_written_beside_the_text(assay: Assay, asked: list[dict[str, Any]], tmp_path: Path) -> None:
    target = tmp_path / "answer.json"
    said = assay("absent", "h100", "--json", str(target), "--", "python", "train.py")
    assert said.out.startswith("It fits")
    assert json.loads(target.read_text())["fits"] == "yes"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("h101", "--", "python", "a.py"), "no absent GPU is called 'h101'; did you mean 'h100'"),
        (("h100",), "no script is given; write it after two dashes"),
        (("h100", "--rank", "0", "--", "python", "a.py"), "--rank needs --ranks"),
        (("h100", "--times", "--largest", "--", "python", "a.py"), "--times asks for one run of one process"),
        (
            ("h100", "--compare-allocators", "--largest", "--", "python", "a.py"),
            "allocators are compared by runs of one",
        ),
        (("h100", "--allocator", "x", "--", "python", "a.py"), "--allocator is 'x'; write settings such as"),
        (("h100", "--ranks", "1", "--", "python", "a.py"), "--ranks is 1; give 2 to 4096"),
        (("h100", "--read", "a.py=1", "--", "python", "a.py"), "--read is 'a.py=1'; write a line and its value"),
        (("h100", "--largest", "--", "python", "a.py"), "--largest finds a number; write {} in its place"),
        (("h100", "--json", "answer.txt", "--", "python", "a.py"), "must end in .json"),
        (("h100", "--steps", "0", "--", "python", "a.py"), "greater than or equal to 1"),
        (("setup",), "standard input is not a terminal to confirm on"),
        (("h100", "--", "nothing-of-this-name"), "there is no program 'nothing-of-this-name'"),
    ],
)
def test_wrong_words_are_answered_in_a_sentence(
    assay: Assay, words: tuple[str, ...], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.absent.launch.check_no_gpu", lambda: None)
    said = assay("absent", *words)
    assert said.code == 2
    assert sentence in said.err


def test_the_largest_number_is_searched_by_several_runs(
    assay: Assay, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tried: list[int] = []

    def run_absent(command: Any, device: Any, **options: Any) -> Launched:
        assert options["steps"] == 2
        tried.append(int(command[-1].removeprefix("--rows=")))
        end = {"how": "raised", "error": "OutOfMemoryError", "message": "", "place": {}}
        return Launched(0, (observation(),)) if tried[-1] <= 5 else Launched(1, (observation(ended=end),))

    monkeypatch.setattr("assay.absent.launch.run_absent", run_absent)
    target = tmp_path / "answer.json"
    words = ("h100", "--largest", "--json", str(target), "--", "python", "train.py", "--rows={}")
    said = assay("absent", *words)
    assert said.code == 0
    assert said.out.startswith("The largest number that fits one NVIDIA H100 80GB HBM3 is 5.")
    assert max(tried) > 5
    value = json.loads(target.read_text())
    assert (value["largest"], value["fits"], value["command"][-1]) == (5, "yes", "--rows=5")


def test_a_script_that_does_not_fit_has_an_exit_code(assay: Assay, monkeypatch: pytest.MonkeyPatch) -> None:
    end = {"how": "raised", "error": "OutOfMemoryError", "message": "", "place": {}}
    launched: Callable[..., Launched] = lambda *given, **options: Launched(1, (observation(ended=end),))  # noqa: E731
    monkeypatch.setattr("assay.absent.launch.run_absent", launched)
    assert assay("absent", "h100", "--", "python", "train.py").code == Exit.UNMET


@pytest.mark.parametrize(("above", "code"), [(-1, Exit.UNMET), (0, 0)])
def test_a_script_that_takes_more_than_is_allowed_has_an_exit_code(
    assay: Assay, asked: list[dict[str, Any]], above: int, code: int
) -> None:
    peak = answer(observation()).peak
    assert peak is not None
    limit = str(peak.requested_bytes + above)
    said = assay("absent", "h100", "--at-most", limit, "--", "python", "train.py")
    assert said.code == code
    assert ("the peak of requested memory is 1 B above --at-most" in said.err) is bool(code)


@pytest.mark.parametrize("words", [("--largest",), ("--compare-allocators",), ("--ranks", "2")])
def test_a_limit_is_asked_of_one_run(assay: Assay, words: tuple[str, ...]) -> None:
    said = assay("absent", "h100", "--at-most", "1GiB", *words, "--", "python", "train.py", "{}")
    assert said.code == 2
    assert "--at-most asks for one run of one process" in said.sentence()
