"""The answer of `assay absent` as text, on one device and over ranks."""

from typing import Any

import pytest

from assay.absent.gpus import ABSENT
from assay.absent.script_answer import AbsentAnswer
from assay.report import view
from assay.report.absent import CANNOT_TELL, NOTHING_SENT, device_table, headline, ranks_headline
from assay.report.kit.blocks import Facts, Table
from support.absent import PLACE, answer, observation, over_two, read


def texts(found: AbsentAnswer) -> list[str]:
    return [one for one in view(found).blocks() if isinstance(one, str)]


def ended(how: str, **more: Any) -> dict[str, Any]:
    return {"how": how, **more}


def test_the_first_sentence_says_that_it_fits() -> None:
    assert headline(answer(observation())) == (
        "It fits one NVIDIA H100 80GB HBM3: "
        "at its peak 2.00 MiB are reserved and 670 MiB to 755 MiB of 79.2 GiB in use."
    )


def test_the_first_sentence_says_that_it_does_not() -> None:
    exhausted = ({**PLACE, "device": 0, "wanted_bytes": 2**32, "step": 1},)
    out_of_memory = ended("raised", error="OutOfMemoryError", message="", place=PLACE)
    found = answer(observation(steps=1, exhausted=exhausted, ended=out_of_memory), returncode=1)
    assert headline(found) == (
        "It does not fit one NVIDIA H100 80GB HBM3: "
        "the 79.2 GiB were exhausted when train.py:12 asked for 4.00 GiB, in step 2."
    )
    assert not any("exit code" in one for one in texts(found))


def test_a_script_without_a_gpu_says_so() -> None:
    assert headline(answer(observation(devices=()))) == "The script used no GPU."
    assert headline(answer()).startswith("The script was not observed")


def test_a_size_that_was_read_is_named_with_its_remedy() -> None:
    found = texts(answer(observation(reads=(read(),))))
    assert found[0].endswith("is not known, and neither is its peak: shapes hang on values that nobody computed.")
    assert "State it with --read train.py:12=VALUE" in found[1]


@pytest.mark.parametrize(
    ("changes", "code", "sentence"),
    [
        (
            {"ended": ended("raised", error="ValueError", message="no", place=PLACE)},
            1,
            "by ValueError at train.py:12: no",
        ),
        ({"ended": ended("interrupted")}, -2, "The script was interrupted after 3 steps."),
        ({"ended": ended("signal", signal=15)}, -15, "The script was killed after 3 steps"),
        ({"ended": ended("running"), "steps": 0}, -9, "The script was killed before its first step"),
        ({"ended": ended("endless", place=PLACE)}, 5, "train.py:12 had read 10,000 times without a step"),
        ({}, 7, "The script ended after 3 steps with exit code 7."),
        ({"refused": "the allocator x"}, 0, "The script chose the allocator x; its memory cannot be told."),
        (
            {"exhausted": ({**PLACE, "device": 0, "wanted_bytes": 2**30, "step": 1},)},
            0,
            "Memory was exhausted at train.py:12 (1.00 GiB more), and the script went on.",
        ),
        (
            {"unknown": ({**PLACE, "library": "cuFFT", "function": "f", "runs": True},)},
            0,
            "train.py:12 uses cuFFT, whose workspace is not known",
        ),
        (
            {"unknown": ({**PLACE, "library": "NCCL", "function": "ncclCommInitRank", "runs": False},)},
            1,
            "train.py:12 needs NCCL (ncclCommInitRank), which an absent GPU does not have.",
        ),
        (
            {"unknown": ({**PLACE, "library": "cuDNN's recurrent kernels", "function": "f", "runs": False},)},
            1,
            "With torch.backends.cudnn.enabled = False torch uses kernels of its own.",
        ),
    ],
)
def test_whatever_limits_the_answer_is_a_sentence(changes: dict[str, Any], code: int, sentence: str) -> None:
    assert any(sentence in one for one in texts(answer(observation(**changes), returncode=code)))


def test_memory_counts_and_reads_follow_and_then_what_cannot_be_told() -> None:
    blocks = list(view(answer(observation(reads=(read("value", operator="item"),)))).blocks())
    facts, counts, reads = blocks[1:4]
    assert isinstance(facts, Facts)
    assert [label for label, _ in facts.rows] == ["requested", "allocated", "reserved", "in use"]
    assert isinstance(counts, Table)
    assert counts.rows[0] == ("launches of kernels", "10", "", "15")
    assert isinstance(reads, Table)
    assert reads.rows == (("train.py:12", "item", "value", "3", "12 B"),)
    assert blocks[-1] == CANNOT_TELL


def test_more_than_ten_lines_that_read_are_summed() -> None:
    many = tuple(read("value", line=line, count=20 - line) for line in range(12))
    table = list(view(answer(observation(reads=many))).blocks())[-2]
    assert isinstance(table, Table)
    assert table.rows[-1] == ("2 more lines", "", "", "19", "")


def test_a_condition_is_in_the_first_sentence() -> None:
    one = {**PLACE, "library": "cuDNN", "function": "f", "runs": True}
    (first, *_) = texts(answer(observation(unknown=(one, one), reads=(read("whole"),))))
    assert "It fits one NVIDIA H100 80GB HBM3 if the workspaces of cuDNN, which are not known, take no more" in first
    assert "and no size hangs on the whole numbers that it reads: at its peak" in first


def test_whole_numbers_are_a_warning_and_no_withdrawal() -> None:
    found = answer(observation(reads=tuple(read("whole", line=line) for line in range(1, 6))))
    assert found.fit.value == "yes"
    assert "Whole numbers are read at train.py:1, train.py:2, train.py:3, …, and are 0 here" in " ".join(texts(found))
    assert not any("Whole" in one for one in texts(answer(observation(reads=(read("whole", stated=True),)))))


def test_without_a_step_the_whole_script_is_counted() -> None:
    found = texts(answer(observation(by_step=(), steps=0)))
    assert "No optimizer of torch took a step, so the counts are those of the whole script." in found


def test_several_processes_and_devices_are_said() -> None:
    assert any("2 processes used the device" in one for one in texts(answer(observation(), observation(process=2))))
    two = tuple({**observation().devices[0].model_dump(), "device": device} for device in (0, 1))
    tables = [one for one in view(answer(observation(devices=two))).blocks() if isinstance(one, Table)]
    assert [row[0] for row in tables[0].rows] == ["0", "1"]


def test_a_line_of_a_library_has_the_user_s_own_beside_it() -> None:
    library = {"file": "/env/site-packages/lib/a.py", "line": 3, "caller": "/home/me/train.py:9"}
    found = texts(answer(observation(reads=(read(**library),))))
    assert found[1].startswith("lib/a.py:3 (from train.py:9) reads a size")
    assert "--read train.py:9=VALUE" in found[1]


def test_all_devices_are_listed() -> None:
    assert [row[0] for row in device_table(ABSENT).rows] == list(ABSENT)


def test_the_first_sentence_names_the_ranks_and_what_is_not_known() -> None:
    assert ranks_headline(over_two()) == (
        "Of 4 ranks, ranks 0, 3 were run, and each fits one NVIDIA H100 80GB HBM3, with room for NCCL's own buffers, "
        "which may take 24.0 MiB to 1.12 GiB: 76.5 GiB are left for them."
    )


def test_memory_that_nccl_may_not_find_is_a_condition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_BUFFSIZE", str(2**30))
    assert ranks_headline(over_two()).endswith(
        ", if NCCL's own buffers, which may take 2.02 GiB to 96.8 GiB, take less than 76.5 GiB."
    )


def test_a_rank_that_failed_is_named_first_with_its_reason() -> None:
    found = over_two(ended={"how": "raised", "error": "ValueError", "message": "no", "place": {"file": "a.py"}})
    assert ranks_headline(found).startswith("Rank 3 of 4: Whether it fits one NVIDIA H100 80GB HBM3 is not known")
    assert any(one.startswith("Rank 3: The script ended") for one in view(found).blocks() if isinstance(one, str))


def test_equal_collectives_of_two_ranks_are_shown_once_with_their_order() -> None:
    parts = list(view(over_two()).blocks())
    ranks, calls = [one for one in parts if isinstance(one, Table)]
    assert [row[0] for row in ranks.rows] == ["0", "3"]
    assert calls.rows == (("reduce_scatter", "0, 1", "1", "300 B"), ("all_gather", "0, 1", "2", "200 B"))
    assert "In order: all_gather 100 B × 2, reduce_scatter 300 B." in parts
    assert "2 other ranks were not run; --rank all runs every one." in parts
    assert str(parts[-1]).startswith(NOTHING_SENT)
