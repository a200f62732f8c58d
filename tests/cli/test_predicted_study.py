"""Comparisons and studies that are predicted on an absent GPU, as a user sees them."""

from pathlib import Path

import pytest

import assay as package
from assay.config import Home
from cli.conftest import Assay

PREDICTED = "Predicted, not measured"
GPU = ("--device", "a100-40gb")
COMPARED = ("compare", "gpt2-124m", *GPU, "--with", "bf16_mixed", "--with", "sdpa_attention")
STUDY = ("study", "run", "gpu-twenty-four", "--predicted", *GPU)


def test_a_comparison_trains_nothing_and_says_so(assay: Assay, home: Home) -> None:
    said = assay(*COMPARED)
    assert said.code == 0
    assert said.out.startswith(f"{PREDICTED}: nothing was trained")
    assert "≈ −14.4 %" in said.out
    assert "bf16_mixed+sdpa_attention" in said.out
    assert not home.root.exists()


def test_its_figures_are_those_of_estimate(assay: Assay) -> None:
    value = assay(*COMPARED, "--json").value
    assert value["predicted"] is True
    rows = {row["row"]: row for row in value["rows"]}
    assert list(rows) == ["baseline", "bf16_mixed", "sdpa_attention", "bf16_mixed+sdpa_attention"]
    for label, row in rows.items():
        stack = () if label == "baseline" else ("--with", label)
        alone = assay("estimate", "gpt2-124m", *GPU, *stack, "--json").value
        assert row["estimate"] == {name: alone[name] for name in row["estimate"]}
        assert row["requested_peak_bytes"] == alone["requested_peak_bytes"]
        memory = alone["device_memory"]
        assert (row["reserved_bytes"], row["in_use_bytes"]) == (memory["reserved_bytes"], memory["total_bytes"])


def test_a_study_has_its_matrix_beside_that_of_the_document(assay: Assay, tmp_path: Path) -> None:
    page = tmp_path / "twenty-four.html"
    said = assay(*STUDY, "--page", str(page))
    assert said.code == 0, said.err
    assert said.out.startswith(PREDICTED)
    lines = said.out.splitlines()
    assert lines[-1] == str(page)
    at = lines.index(
        "step time, predicted: deviation from the sum of the single changes in points, by optimizations and shape"
    )
    assert lines[at + 1].split("\t") == ["optimizations", "default", "context x2", "layers x2", "embeddings x2"]
    assert "Memory Used (GB), in the document: deviation from the sum" in said.out
    assert PREDICTED in page.read_text()
    assert page.read_text().count("<svg") == 8


def test_a_plan_on_an_absent_gpu_is_the_predicted_study(assay: Assay, home: Home) -> None:
    words = ("gpu-twenty-four", "--scale", "small", "--predicted", *GPU)
    planned, predicted = (assay("study", verb, *words) for verb in ("plan", "run"))
    assert planned.code == 0, planned.err
    assert planned.out.startswith(PREDICTED)
    assert planned.out == predicted.out
    assert not home.root.exists()


def test_without_a_treatment_techniques_that_the_device_has_are_compared(assay: Assay) -> None:
    said = assay("compare", "demo", "--device", "t4", "--json")
    assert "No technique was named, so these are compared" in said.err
    assert "bf16_mixed" not in [row["row"] for row in said.value["rows"]]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("compare", "demo", *GPU, "--seeds", "3"), "--seeds is not used with --device"),
        (("compare", "demo", *GPU, "--track", "wandb"), "--track is not used with --device"),
        (("compare", "demo", *GPU, "device=cpu"), "both say where the step runs"),
        (("compare", "demo", "--device", "a1000"), "no datasheet of a device 'a1000'"),
        (("study", "run", "gpu-twenty-four", "--predicted"), "--predicted needs a GPU"),
        (("study", "run", "gpu-twenty-four", *GPU), "--device is used with --predicted only"),
        (("study", "plan", "gpu-twenty-four", "--predicted"), "--predicted needs a GPU"),
        (("study", "plan", "gpu-twenty-four", *GPU), "--device is used with --predicted only"),
        (("study", "plan", "gpu-twenty-four", "--predicted", *GPU, "--cells"), "--cells is not used with --predicted"),
        ((*STUDY, "--max-hours", "1"), "--max-hours is not used with --predicted"),
        ((*STUDY, "data.path=/no/such/text"), "or give model.vocab_size"),
    ],
)
def test_a_word_that_a_prediction_cannot_use_is_refused(assay: Assay, words: tuple[str, ...], says: str) -> None:
    said = assay(*words)
    assert said.code == 2
    assert says in said.sentence()


def test_a_text_tells_the_vocabulary_if_nothing_else_does(assay: Assay, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("abcdefgh" * 4000)
    words = (*STUDY, f"data.path={tmp_path / 'text.txt'}", "--json")
    (control, *_) = assay(*words).value["rows"]
    alone = assay("estimate", "shakespeare-char", "model.vocab_size=8", *GPU, "--json").value
    assert control["estimate"]["saved_bytes"] == alone["saved_bytes"]


def test_python_has_a_frame_a_figure_and_a_report() -> None:
    found = package.study.predict("gpu-twenty-four", device="a100-40gb")
    frame = found.to_frame()
    assert len(frame) == 24
    assert list(frame.columns[:3]) == ["row", "shape", "optimizations"]
    assert frame["step_flops"].min() > 0
    assert found.plot() is not None
    assert PREDICTED in found._repr_html_()
    alone = package.study.predict_comparison("demo", device="t4", treatments="sdpa_attention")
    assert alone.plot() is None
