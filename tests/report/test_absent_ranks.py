"""The sentences of `assay absent --ranks`: what fits, what was not run, and the collectives of a step."""

import pytest

from assay.report.absent_ranks import NOTHING_SENT, absent_ranks_report, ranks_headline
from assay.report.blocks import Table
from support.absent import over_two


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
    assert any(one.startswith("Rank 3: The script ended") for one in absent_ranks_report(found) if isinstance(one, str))


def test_equal_collectives_of_two_ranks_are_shown_once_with_their_order() -> None:
    parts = list(absent_ranks_report(over_two()))
    ranks, calls = [one for one in parts if isinstance(one, Table)]
    assert [row[0] for row in ranks.rows] == ["0", "3"]
    assert calls.rows == (("reduce_scatter", "0, 1", "1", "300 B"), ("all_gather", "0, 1", "2", "200 B"))
    assert "In order: all_gather 100 B × 2, reduce_scatter 300 B." in parts
    assert "2 other ranks were not run; --rank all runs every one." in parts
    assert str(parts[-1]).startswith(NOTHING_SENT)
