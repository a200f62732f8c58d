"""`assay capacity`: answers, their verification by real runs, and bad input."""

from pathlib import Path

import pytest

from cli.conftest import Assay

TINY = (
    *("model.n_layer=1", "model.n_head=2", "model.n_embd=16", "model.context_length=16", "training.batch_size=4"),
    "device=cpu",
)


def test_the_table_has_the_largest_of_each_setting(assay: Assay) -> None:
    said = assay("capacity", "demo", *TINY, "--memory", "3MB")
    assert said.code == 0
    for text in ("sequences per step", "context", "layers", "width", "The budget is 2.86 MiB."):
        assert text in said.out
    value = assay("capacity", "demo", *TINY, "--memory", "3MB", "--json").value
    assert value["memory_bytes"] == 3_000_000
    assert all(one["peak_bytes"] <= 3_000_000 < one["next_bytes"] for one in value["largest"])


def test_what_does_not_fit_at_all_says_what_it_needs(assay: Assay) -> None:
    said = assay("capacity", "demo", *TINY, "--memory", "10kB")
    assert said.code == 0
    assert "Nothing fits into 9.77 KiB by a smaller context: model.context_length=1 needs" in said.out


@pytest.mark.slow
def test_what_fits_by_the_ledger_fits_in_truth(assay: Assay, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("The quick brown fox jumps over the lazy dog.\n" * 9000)
    words = ("capacity", "demo", *TINY, f"data.path={tmp_path / 'text.txt'}", "--memory", "12MB", "--verify", "--json")
    for one in assay(*words).value["largest"]:
        assert one["failure"] is None
        assert one["measured_bytes"] == pytest.approx(one["peak_bytes"], rel=0.001)
        assert one["measured_bytes"] <= 12_000_000


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--memory", "8 elephants"), "'8 elephants' is not an amount of memory"),
        (("--memory", "0"), "a budget of 0 bytes is not possible"),
        (("--memory", "8GB", "--with", "sdpa"), "sdpa_attention"),
    ],
)
def test_a_mistake_is_one_sentence(assay: Assay, words: tuple[str, ...], says: str) -> None:
    said = assay("capacity", "demo", *words)
    assert said.code == 2
    assert says in said.sentence()
