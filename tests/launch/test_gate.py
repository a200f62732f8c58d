"""What a gate decides: tolerances, versions of torch, and a lock that is read back."""

from pathlib import Path
from typing import Any

import pytest

from assay.errors import UsageError
from assay.launch.gate import (
    GateAnswer,
    StepCheck,
    Tolerance,
    lock_path,
    name_in_lock,
    read_lock,
    write_lock,
)
from assay.records.gated import LOCK, FigureBlock, GateLock, LockedStep, StepFigures
from assay.records.status import Exit


def figures(torch: str = "2.13.0", blocks: tuple[FigureBlock, ...] = (), **changed: int) -> StepFigures:
    found = {"peak_bytes": 1000, "saved_bytes": 400, "flops": 10**6, "synchronizations": 2, **changed}
    return StepFigures.model_validate(
        {"torch": torch, "figures": found, "instant": "update", "parts": {}, "blocks": {"peak_bytes": blocks}}
    )


def step(found: StepFigures, reserved: int | None = None, torch: str = "2.11.0+cu130") -> LockedStep:
    """A step of a lock; with `reserved` bytes an absent GPU ran it, too."""
    peaks = {"requested_peak_bytes": 900, "reserved_peak_bytes": reserved}
    absent = None if reserved is None else {"torch": torch, "device": "NVIDIA H100", "figures": peaks}
    return LockedStep.model_validate({"step": "a.py:build", "device": "h100", "found": found, "absent": absent})


def check(now: StepFigures, tolerance: Tolerance = Tolerance(), locked: StepFigures | None = None) -> StepCheck:
    return StepCheck(step(now), step(locked or figures()), tolerance)


@pytest.mark.parametrize(
    ("changed", "tolerance", "verdict"),
    [
        ({}, Tolerance(), "unchanged"),
        ({"peak_bytes": 1001}, Tolerance(), "grew"),
        ({"peak_bytes": 1010}, Tolerance(fraction=0.01), "shrank"),
        ({"peak_bytes": 1011}, Tolerance(fraction=0.01), "grew"),
        ({"peak_bytes": 1100}, Tolerance(nbytes=100), "shrank"),
        ({"flops": 10**6 + 1}, Tolerance(nbytes=100), "grew"),
        ({"synchronizations": 3}, Tolerance(fraction=1.0), "grew"),
        ({"graph_breaks": 1}, Tolerance(), "grew"),
        ({"peak_bytes": 999}, Tolerance(), "shrank"),
        ({"peak_bytes": 900, "saved_bytes": 401}, Tolerance(), "grew"),
    ],
)
def test_a_figure_that_grows_beyond_what_is_allowed_decides(
    changed: dict[str, int], tolerance: Tolerance, verdict: str
) -> None:
    # A growth that is allowed is no reduction: the figures of memory shrink beside it where "shrank" is expected.
    smaller = {"saved_bytes": 300} if verdict == "shrank" else {}
    found = check(figures(**{**smaller, **changed}), tolerance)
    assert found.verdict == verdict
    answer = GateAnswer(Path(LOCK), (found,))
    assert answer.exit_code is (Exit.UNMET if verdict == "grew" else Exit.DONE)


@pytest.mark.parametrize(("strict", "code"), [(False, Exit.DONE), (True, Exit.UNMET)])
def test_growth_under_another_torch_fails_a_strict_check_only(strict: bool, code: Exit) -> None:
    found = check(figures(torch="2.14.0", peak_bytes=2000))
    assert found.verdict == "other torch"
    assert GateAnswer(Path(LOCK), (found,), strict=strict).exit_code is code


@pytest.mark.parametrize(
    ("locked", "now", "verdict", "said"),
    [
        (step(figures(), 2000), step(figures(), 2001), "grew", "reserved (absent GPU)"),
        (step(figures(), 2000), step(figures(), 1999), "shrank", "NVIDIA H100, torch 2.11.0+cu130"),
        (step(figures(), 2000), step(figures(), 2000), "unchanged", "900 B requested with workspaces, 1.95 KiB"),
        (step(figures(), 2000), step(figures(), 2001, "2.12.0+cu130"), "unchanged", "these decide nothing"),
        (step(figures("2.12.0"), 2000), step(figures(), 2001), "grew", "reserved (absent GPU)"),
        (
            step(figures(), 2000),
            step(figures()),
            "unchanged",
            "not checked  figures of an absent NVIDIA H100, torch 2.11.0+cu130",
        ),
        (step(figures()), step(figures(), 2000), "unchanged", "are not locked yet"),
    ],
)
def test_figures_of_an_absent_gpu_decide_where_both_sides_have_them(
    locked: LockedStep, now: LockedStep, verdict: str, said: str
) -> None:
    from assay.report.gate import failure_text

    answer = GateAnswer(Path(LOCK), (StepCheck(now, locked),))
    assert answer.checks[0].verdict == verdict
    assert answer.exit_code is (Exit.UNMET if verdict == "grew" else Exit.DONE)
    assert said in failure_text(answer)
    assert max(map(len, failure_text(answer).splitlines())) <= 80


def test_an_update_without_an_absent_gpu_keeps_its_locked_figures() -> None:
    locked = step(figures(), 2000)
    assert StepCheck(step(figures(peak_bytes=9)), locked).to_lock == step(figures(peak_bytes=9), 2000)
    assert StepCheck(step(figures(), 1999), locked).to_lock == step(figures(), 1999)


def test_blocks_that_grew_most_are_first_and_equal_ones_are_left_out() -> None:
    def block(path: str, size: int, line: str = "") -> FigureBlock:
        return FigureBlock(part="saved: MLP", path=path, operator="aten.gelu", line=line, count=1, size=size)

    locked = figures(blocks=(block("a", 10, "a.py:1"), block("b", 20), block("c", 5)))
    now = figures(blocks=(block("a", 10, "a.py:99"), block("b", 25), block("d", 50)))
    changes = check(now, locked=locked).changes("peak_bytes")
    assert [(one.block.path, one.before, one.after) for one in changes] == [("d", 0, 50), ("b", 20, 25), ("c", 5, 0)]


def test_a_lock_is_read_back_and_has_a_line_for_each_block(tmp_path: Path) -> None:
    blocks = tuple(FigureBlock(part="weights", path=f'm.{place}"@1@', count=1, size=place) for place in range(12))
    steps = tuple(LockedStep(step=name, device="cpu", found=figures(blocks=blocks)) for name in ("b:b", "a:a"))
    lock = GateLock().with_steps((*steps, step(figures(), 2000)))
    write_lock(tmp_path / LOCK, lock)
    assert read_lock(tmp_path / LOCK) == lock
    assert [one.step for one in lock.steps] == ["a.py:build", "a:a", "b:b"]
    text = (tmp_path / LOCK).read_text()
    assert sum('"part": "weights"' in line for line in text.splitlines()) == 24
    assert lock.with_steps(lock.steps[:1]) == lock
    assert text.count("absent") == 1


@pytest.mark.parametrize("text", ["", "[]", '{"steps": []}', '{"format": 1, "steps": 3}', '{"format": 2}'])
def test_a_file_that_is_no_lock_is_refused_with_its_path(text: str, tmp_path: Path) -> None:
    (tmp_path / LOCK).write_text(text)
    with pytest.raises(UsageError, match=r"assay-gate.json .*assay gate update"):
        read_lock(tmp_path / LOCK)
    with pytest.raises(UsageError, match="there is no lock"):
        read_lock(tmp_path / "other.json")


def test_a_lock_beside_the_file_is_found_and_one_in_the_folder_comes_first(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    names = ["tests/steps.py:build"]
    assert lock_path(names, tmp_path) == tmp_path / LOCK
    (tmp_path / "tests" / LOCK).touch()
    assert lock_path(names, tmp_path) == tmp_path / "tests" / LOCK
    assert name_in_lock(names[0], tmp_path, tmp_path / "tests" / LOCK) == "steps.py:build"
    (tmp_path / LOCK).touch()
    assert lock_path(names, tmp_path) == tmp_path / LOCK
    assert name_in_lock(names[0], tmp_path, tmp_path / LOCK) == names[0]
    assert name_in_lock("package.module:build", tmp_path, tmp_path / LOCK) == "package.module:build"


@pytest.mark.parametrize(
    ("text", "wanted"), [(None, Tolerance()), ("1%", Tolerance(0.01)), ("1MB", Tolerance(0, 10**6))]
)
def test_a_tolerance_is_a_share_or_an_amount(text: str | None, wanted: Tolerance) -> None:
    from assay.api.gate import tolerance_of

    assert tolerance_of(text) == wanted


@pytest.mark.parametrize("text", ["", "%", "x%", "-1%", "inf%", "nan%", "many"])
def test_another_tolerance_is_refused(text: str) -> None:
    from assay.api.gate import tolerance_of

    with pytest.raises(UsageError, match="1% or 1MB"):
        tolerance_of(text)


def test_the_view_of_growth_has_at_most_eighty_columns() -> None:
    from assay.report import view
    from assay.report.gate import failure_text, junit_text, markdown_text

    long = FigureBlock(
        part="saved: LlamaDecoderLayer",
        path="model.layers.*.self_attn.q_proj",
        operator="aten._scaled_dot_product_flash_attention_for_cpu",
        line="models/llama/modeling_llama.py:123",
        count=1,
        size=123_456_789_012,
    )
    answer = GateAnswer(Path(LOCK), (check(figures(blocks=(long,), peak_bytes=123_456_790_012)),))
    text = failure_text(answer)
    assert max(map(len, text.splitlines())) <= 80
    assert "modeling_llama.py:123" in markdown_text(answer) or "llama.py:123" in text
    assert "attention_for_cpu" in text
    values: dict[str, Any] = view(answer).values()
    assert values["exit_code"] == 5
    assert values["steps"][0]["changed"]["peak_bytes"][0]["line"].endswith("modeling_llama.py:123")
    assert '<failure message="a.py:build on h100: grew: peak of tensors">' in junit_text(answer)
    assert 'failures="1"' in junit_text(answer)
