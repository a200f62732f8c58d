"""`assay capacity`: answers, their verification by real runs, and bad input."""

import re
from pathlib import Path

import pytest

from assay.estimator.capacity import Capacity, Fitting, Largest
from assay.records.status import Exit
from cli.conftest import Assay

SHALLOW = ("model.n_embd=256", "model.n_head=4", "model.context_length=128", "model.vocab_size=256")
TINY = (
    *("model.n_layer=1", "model.n_head=2", "model.n_embd=16", "model.context_length=16", "training.batch_size=4"),
    "device=cpu",
)


def test_the_table_has_the_largest_of_each_setting(assay: Assay) -> None:
    said = assay("capacity", "demo", *TINY, "--memory", "9MB")
    assert said.code == 0
    for text in ("sequences per step", "context", "layers", "width", "The budget is 8.58 MiB."):
        assert text in said.out
    assert "These are predictions, and no run was made. --verify trains each answer for three steps." in said.out
    value = assay("capacity", "demo", *TINY, "--memory", "9MB", "--json").value
    assert (value["memory_bytes"], value["of"]) == (9_000_000, "tensors")
    assert all(one["peak_bytes"] <= 9_000_000 < one["next_bytes"] for one in value["largest"])


def test_a_model_that_does_not_fit_at_all_is_refused_with_the_smallest_budget_that_would_do(assay: Assay) -> None:
    said = assay("capacity", "demo", *TINY, "--memory", "10kB")
    assert said.code == 2
    (least,) = re.findall(r"the smallest budget that would do is (\d+) bytes \(.*\), with (\S+)$", said.sentence())
    assert assay("capacity", "demo", *TINY, "--memory", least[0]).code == 0
    assert assay("capacity", "demo", *TINY, "--memory", str(int(least[0]) - 1)).code == 2
    rows = assay("capacity", "demo", *TINY, "--memory", least[0], "--json").value["largest"]
    assert least[1] in [f"{row['key']}={row['value']}" for row in rows]


def test_a_model_that_no_single_smaller_setting_fits_is_told_so(assay: Assay) -> None:
    said = assay("capacity", "demo", *TINY, "model.vocab_size=50000", "training.batch_size=1", "--memory", "14MB")
    assert said.code == 0
    assert "No training.batch_size is small enough for 13.4 MiB: training.batch_size=1 needs" in said.out


def test_a_budget_of_the_process_or_of_a_device_leaves_less(assay: Assay) -> None:
    plain, process = (
        assay("capacity", "demo", *SHALLOW, "--memory", "300MB", "--of", of, "--json").value["largest"]
        for of in ("tensors", "process")
    )
    assert all((less["value"] or 0) < more["value"] for less, more in zip(process, plain, strict=True))
    there = assay("capacity", "demo", *SHALLOW, "--memory", "900MB", "--device", "t4", "--json").value
    assert (there["memory_bytes"], there["of"]) == (900 * 10**6, "device")
    assert all(790_000_000 < one["peak_bytes"] <= 900 * 10**6 for one in there["largest"])


@pytest.mark.slow
def test_a_batch_that_fits_by_the_ledger_fits_in_truth(assay: Assay, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("The quick brown fox jumps over the lazy dog.\n" * 9000)
    words = ("capacity", "demo", *TINY, f"data.path={tmp_path / 'text.txt'}", "--memory", "12MB", "--verify", "--json")
    for one in assay(*words).value["largest"]:
        assert one["failure"] is None
        # 2 MiB are for the program's own objects, and malloc adds some bytes to each tensor.
        beside = one["peak_bytes"] - 2 * 2**20 - one["measured_bytes"]
        assert 0 <= beside <= 0.05 * one["measured_bytes"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--memory", "8 elephants"), "'8 elephants' is not an amount of memory"),
        (("--memory", "0"), "a budget of 0 bytes is not possible"),
        (("--memory", "-5GB"), "'-5GB' is negative"),
        ((), "a budget is missing; give --memory, such as 8GB, or name a GPU with --device"),
        (("--device", "t4", "--memory", "200GB"), "a T4 has 14.6 GiB for torch, and not 186 GiB"),
        (("--memory", "8GB", "--of", "moon"), "not of 'moon'; there are tensors, process, device"),
        (("--memory", "8GB", "--of", "device", "device=cpu"), "a CPU has no memory of its own"),
        (("--device", "zx81"), "there are v100, t4, l4"),
        (("--device", "tpu-v5e"), "TPU v5e does not run CUDA"),
        (("--device", "a100", "--verify"), "a100 may be absent"),
        (("--device", "a100", "--of", "process"), "not in the process's memory"),
        (("--device", "t4", "--with", "bf16_mixed"), "T4 is older"),
        (("--memory", "8GB", "--with", "sdpa"), "sdpa_attention"),
    ],
)
def test_a_mistake_is_one_sentence(assay: Assay, words: tuple[str, ...], says: str) -> None:
    said = assay("capacity", "demo", *words)
    assert said.code == 2
    assert says in said.sentence()


def test_a_measured_peak_above_the_budget_is_a_limit_that_does_not_hold(
    assay: Assay, monkeypatch: pytest.MonkeyPatch
) -> None:
    found_bytes = {"configured_bytes": 500, "peak_bytes": 900, "next_bytes": 1100}
    largest = Largest(key="model.n_layer", configured=1, unit=1, value=2, **found_bytes)
    for measured, code in ((900, Exit.DONE), (1001, Exit.UNMET)):
        found = Capacity([Fitting(largest=largest, measured_bytes=measured)], 1000, "tensors")
        monkeypatch.setattr("assay.api.recommending.capacity", lambda *given, found=found, **options: found)
        assert assay("capacity", "demo", *TINY, "--memory", "1000", "--verify").code == code
