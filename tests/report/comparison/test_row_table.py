"""The table of a comparison on terminals of several widths, and the sentences below it."""

import io
import re
from typing import Any

import pytest
from rich.console import Console

from assay.analysis.comparison import Comparison, analyse
from assay.config import validate
from assay.optimizations import resolve_run
from assay.records.evidence import Evidence
from assay.records.prediction import Memory, PeakBlock, Predicted
from assay.records.status import Status
from assay.records.study import ComparisonRecord
from assay.report.comparison.row_table import footnotes, list_rows, print_comparison, seeds, wide
from assay.report.comparison.wording import columns
from support.comparisons import LABELS, TREATMENTS, record

WIDE = wide(columns(resolve_run(validate({}))))

DEAD: dict[str, Any] = {
    "status": Status.NO_EFFECT,
    "reason": "bf16_mixed took no effect",
    "blocks": (),
    "step_seconds": None,
    "memory": Memory(),
    "train_loss": None,
    "val_loss": None,
    "evidence": (Evidence(optimization="bf16_mixed", observed="0 of 49 matmuls in bfloat16", verdict=False),),
}


def printed(comparison: Comparison, width: int | None) -> str:
    """What a terminal of a width shows, or what goes into a pipe; without colours."""
    stream = io.StringIO()
    print_comparison(
        comparison,
        Console(file=stream, width=width or 80, force_terminal=width is not None, color_system=None),
    )
    return stream.getvalue()


def section(text: str, treatment: str) -> str:
    """The lines of one treatment, up to the next."""
    lines = text.splitlines()
    start = next(at for at, line in enumerate(lines) if line.split("  ")[0].strip() == treatment)
    names = {"baseline", "baseline (again)", *LABELS}
    stop = next((at for at in range(start + 1, len(lines)) if lines[at].split("  ")[0].strip() in names), len(lines))
    return "\n".join(lines[start:stop])


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return analyse(record())


@pytest.mark.parametrize("width", [80, 120, 160, 200, None])
def test_every_row_has_its_figures_changes_predictions_and_proof(comparison: Comparison, width: int | None) -> None:
    text = printed(comparison, width)
    sdpa = section(text, "sdpa_attention")
    for piece in ("46.8 MiB", "−28.0 %", "246 MiB", "−22.0 %", "2.4100 2.4160", "−12.0 %", "+13.6 %", "[−13.0, −10.9]"):
        assert piece in sdpa
    assert "predicted" in sdpa
    assert "−14.2 %" in sdpa
    assert "✓ 4 of 4 attentions fused" in sdpa
    assert "✓ 49 of 49 matmuls in bfloat16" in section(text, "bf16_mixed")
    assert "bit-equal" in section(text, "activation_checkpointing")
    assert "not distinguishable" in section(text, LABELS[4])
    assert "not distinguishable" not in sdpa


@pytest.mark.parametrize("width", [60, 80, WIDE - 1, WIDE, 120, 160, 200])
def test_no_line_is_wider_than_the_terminal_and_no_figure_is_cut(comparison: Comparison, width: int) -> None:
    text = printed(comparison, width)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width
    assert "…" not in text


def test_a_pipe_gets_plain_lines_whole(comparison: Comparison) -> None:
    text = printed(comparison, None)
    assert "\x1b" not in text
    assert "─" not in text
    line = next(line for line in text.splitlines() if line.startswith("Changes are relative to both runs"))
    assert len(line) > 200
    assert "Error of the predicted peak of tensors: +0.20 % in each of 6 rows." in text


@pytest.mark.parametrize("width", [80, WIDE, None])
def test_traced_peaks_are_marked_and_missing_ones_have_their_reason(width: int | None) -> None:
    traced = {"predicted": Predicted(tensors_peak_bytes=50 * 2**20, traced=True)}
    refused = {"predicted": Predicted(refused="its shapes depend on values")}
    changes = {"baseline": traced, "sdpa_attention": traced, "bf16_mixed": refused}
    text = printed(analyse(record(changes=changes)), width)
    assert "predicted 50.0 MiB 0.0 %" in " ".join(section(text, "sdpa_attention").split())
    assert "traced" in section(text, "sdpa_attention")
    assert "predicted" not in section(text, "bf16_mixed")
    assert "traced" not in section(text, LABELS[3])
    plain = " ".join(text.split())
    assert "A traced peak is that of the program itself" in plain
    assert "Not predicted: bf16_mixed its shapes depend on values." in plain
    assert "traced" not in printed(analyse(record()), width)


def test_the_smallest_change_and_the_method_are_said(comparison: Comparison) -> None:
    text = " ".join(printed(comparison, 120).split())
    assert "Smallest change that can be distinguished from none: process, peak 0.04" in text
    assert "step time 1.2 % (a true change of 1.5 % is found in four of five comparisons)" in text
    deviation = f"{100 * comparison.resolution['step_seconds'].deviation:.2g} %"
    assert f"Step times of equal runs deviate by {deviation} (7 degrees of freedom)" in text
    assert "2 runs of each over 2 seeds, each timed 5 times, in turns" in text
    assert "Fewer than three seeds" in text


def test_only_seeds_that_finished_are_counted() -> None:
    whole = record(treatments=TREATMENTS[:1], seeds=3)
    left = tuple(one for one in whole.cells if one.cell.seed != whole.seeds[-1])
    assert seeds(analyse(whole)) == "3 seeds"
    assert seeds(analyse(whole.model_copy(update={"cells": left}))) == "2 of 3 seeds"
    assert seeds(analyse(record(treatments=TREATMENTS[:1], seeds=1))) == "1 seed"


@pytest.mark.parametrize("width", [80, 160, None])
def test_a_row_that_is_not_done_says_why_and_shows_no_figures(width: int | None) -> None:
    text = section(printed(analyse(record(changes={"bf16_mixed": DEAD})), width), "bf16_mixed")
    assert "no effect: bf16_mixed took no effect" in text
    assert "✗ 0 of 49 matmuls in bfloat16" in text
    assert "85.7 ms" in section(printed(analyse(record()), width), "bf16_mixed")
    assert "85.7 ms" not in text


@pytest.mark.parametrize("width", [80, 160, None])
def test_flags_are_shown(width: int | None) -> None:
    factors = dict.fromkeys(("baseline", "baseline (again)", *TREATMENTS), (0.9, 0.9, 0.9, 0.0))
    text = printed(analyse(record(factors=factors)), width)
    assert "too equal" in section(text, "bf16_mixed")


def test_three_seeds_show_the_mean_loss_with_an_interval() -> None:
    text = section(printed(analyse(record(seeds=3)), 120), "bf16_mixed")
    assert "2.4180" in text
    assert "too few seeds" not in text


def test_too_few_processes_are_said_and_give_no_interval_of_a_time() -> None:
    text = printed(analyse(record(seeds=1)), 120)
    assert "Too few runs for intervals of times: give more --seeds or --processes." in text
    assert "too few runs" in section(text, "sdpa_attention")
    assert "[" not in text


def test_losses_that_cancel_are_not_bit_equal() -> None:
    made = record()
    shifts = {0: 0.25, 1: -0.25}
    cells = tuple(
        one.model_copy(
            update={"result": one.result.model_copy(update={"val_loss": one.result.val_loss + shifts[one.cell.seed]})}
        )
        if one.cell.treatment == TREATMENTS[2] and one.result.val_loss
        else one
        for one in made.cells
    )
    before = section(printed(analyse(made), None), TREATMENTS[2])
    after = section(printed(analyse(made.model_copy(update={"cells": cells})), None), TREATMENTS[2])
    assert "bit-equal" in before
    assert "bit-equal" not in after
    assert "0.0 % too few seeds" in after


def test_a_difference_too_small_to_print_is_said() -> None:
    text = section(printed(analyse(record(seeds=3)), None), "sdpa_attention")
    assert "0.0 % [0.0, 0.0] a difference below 0.05 %" in text


def test_brackets_in_names_are_not_markup() -> None:
    made = record(treatments=TREATMENTS[:1])
    renamed = tuple(
        one.model_copy(update={"cell": one.cell.model_copy(update={"treatment": "[red]x[/red]", "levels": {}})})
        if one.cell.treatment == TREATMENTS[0]
        else one
        for one in made.cells
    )
    made = made.model_copy(update={"cells": renamed, "treatments": ("[red]x[/red]",)})
    assert "[red]x[/red]" in printed(analyse(made), 120)


@pytest.mark.parametrize("width", [80, 200, None])
def test_a_longer_first_step_is_priced(width: int | None) -> None:
    changes = {"baseline": {"first_step_seconds": 0.1}, "sdpa_attention": {"first_step_seconds": 9.0}}
    changes["bf16_mixed"] = changes["sdpa_attention"]
    text = printed(analyse(record(changes=changes)), width)
    faster = " ".join(section(text, "sdpa_attention").split())
    assert "first step 8.9" in faster
    assert re.search(
        r"earned back after 1,\d{3} steps \(1,\d{3} to \d,\d{3}\) at 6\.\d+ ms a step, which is not", faster
    )
    assert "never earned back: steps are slower" in " ".join(section(text, "bf16_mixed").split())
    assert "first step" not in section(text, "activation_checkpointing")


def test_a_row_on_a_gpu_says_whether_it_waits_for_the_host() -> None:
    def on_gpu(share: float) -> dict[str, object]:
        timed = record().of("sdpa_attention")[0].result.blocks
        return {"blocks": tuple(one.model_copy(update={"host_seconds": share * one.seconds}) for one in timed)}

    comparison = analyse(record(changes={"sdpa_attention": on_gpu(0.98), "bf16_mixed": on_gpu(0.4)}))
    shares = {row["treatment"]: row["host_share"] for row in comparison.to_json()["rows"]}
    assert (shares["sdpa_attention"], shares["bf16_mixed"]) == (pytest.approx(0.98), pytest.approx(0.4))
    text = printed(comparison, 200)
    bound = "step waits for the host (the host queues it in 98% of its time)"
    assert bound in " ".join(section(text, "sdpa_attention").split())
    assert "step waits for the device" in " ".join(section(text, "bf16_mixed").split())
    assert "waits for" not in section(text, "activation_checkpointing")
    assert shares["activation_checkpointing"] is None


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"a": "1 %"}, "a 1 %"),
        ({"a": "1 %", "b": "1 %"}, "1 % in each of 2 rows"),
        ({"a": "1 %", "b": "2 %", "c": "1 %"}, "a 1 %; b 2 %; c 1 %"),
        ({**dict.fromkeys("abcde", "0 %"), "f": "2 %"}, "f 2 %; 0 % in each of 5 other rows"),
    ],
)
def test_a_text_that_many_rows_share_is_said_once(told: dict[str, str], says: str) -> None:
    assert list_rows(told) == says


def test_blocks_that_were_not_predicted_are_named_by_row() -> None:
    block = PeakBlock(nbytes=4096, count=2, made="batches.py:68")
    known = {"predicted": Predicted(peak_blocks=(block.model_copy(update={"count": 1}),))}
    found = footnotes(analyse(record(changes={TREATMENTS[0]: known | {"memory": Memory(peak_blocks=(block,))}})))
    said = (
        f"Against its prediction, a measured peak has: {TREATMENTS[0]} one block of 4,096 bytes more (batches.py:68)."
    )
    assert said in found
    assert not any("Against its prediction" in one for one in footnotes(analyse(record())))


def untimed(made: ComparisonRecord) -> ComparisonRecord:
    return made.model_copy(update={"protocol": made.protocol.model_copy(update={"blocks": 0})})


def test_the_second_baseline_is_said_to_be_compared_with_the_first_alone() -> None:
    said = "is compared with the first run alone. Brackets "
    assert f" Its times are means of both, and baseline (again) {said}" in footnotes(analyse(record()))[0]
    assert f" Baseline (again) {said}" in footnotes(analyse(untimed(record())))[0]


def test_predictions_under_load_are_said_only_where_times_are_predicted() -> None:
    for seconds, said in ((0.1, True), (None, False)):
        loaded = {"predicted": Predicted(step_seconds=seconds, under_load=True)}
        found = footnotes(analyse(record(changes={TREATMENTS[0]: loaded})))
        assert any("Other programs worked while steps were timed" in one for one in found) is said


def test_a_column_that_a_system_does_not_tell_is_named_with_the_reason() -> None:
    told = {"memory.process_peak_bytes": "only Linux has it", "blocks.load": "no column, so it is not said"}
    found = footnotes(analyse(record(changes={TREATMENTS[0]: {"missing": told}})))
    assert "Not measured: process, peak (only Linux has it)." in found
    assert not any("Not measured" in one for one in footnotes(analyse(record())))
