"""Measured memory and communication that miss their prediction are mentioned with both figures, and nothing else is."""

from typing import Any

import pytest

from assay.config import ResolvedRun
from assay.proofs.mispredicted import differing_blocks, differing_text, mispredictions
from assay.records.prediction import Memory, PeakBlock, Predicted, PredictedRank
from assay.records.ranks import RankResult, Sent
from assay.records.run import RunResult
from assay.records.status import Status

MIB = 2**20
HONEST = {"tensors_peak_bytes": 100 * MIB, "saved_bytes": 50 * MIB}
SENT = Sent(collective="all_reduce", axis="dp", count=3, payload_bytes=6 * MIB)
EXCHANGED = Sent(collective="all_to_all", axis="dp", count=6, payload_bytes=6 * MIB)
MIXTURE = ResolvedRun.model_validate({"model": {"n_expert": 4}})


def result(config: ResolvedRun | None = None, **fields: Any) -> RunResult:
    base = {"run": "a", "status": Status.DONE, "created": "2026-01-01", "identity": "0"}
    return RunResult.model_validate({**base, "config": config or ResolvedRun(), **fields})


def alone(peak: int, saved: int, **predicted: Any) -> list[str]:
    memory = Memory(tensors_peak_bytes=peak, saved_bytes={"aten.mm": saved})
    return mispredictions(result(memory=memory, predicted=Predicted(**{**HONEST, **predicted})))


def over_two(config: ResolvedRun | None = None, **measured: Any) -> list[str]:
    """Two ranks of which the second has other figures."""
    sent = {"sent": measured.pop("predicted_sent", (SENT,))}
    honest = RankResult(rank=0, place={}, **HONEST, **sent)
    odd = honest.model_copy(update={"rank": 1, **measured})
    predicted = PredictedRank(sent_bytes=0, **HONEST, **sent)
    return mispredictions(result(config, ranks=(honest, odd), predicted=Predicted(ranks=(predicted, predicted))))


def test_figures_near_their_prediction_are_silent() -> None:
    assert alone(101 * MIB, 50 * MIB) == []
    assert alone(99 * MIB, 49 * MIB + MIB // 2) == []
    assert over_two() == []
    assert over_two(tensors_peak_bytes=104 * MIB) == []


def test_a_peak_that_saves_less_than_predicted_is_mentioned() -> None:
    (said,) = alone(103 * MIB, 50 * MIB)
    assert said == (
        "the peak of tensors is 103 MiB, but 100 MiB was predicted: the optimizations may not save what they promise, "
        "or the prediction of this stack is wrong"
    )


def test_a_trace_that_misses_blames_no_technique() -> None:
    (said,) = alone(103 * MIB, 50 * MIB, saved_bytes=None, traced=True)
    assert said == (
        "the peak of tensors is 103 MiB, but 100 MiB was predicted: kernels take memory that no operator returns, or "
        "the step does other work with real values than in a trace"
    )


def test_a_small_block_that_was_not_predicted_is_named() -> None:
    weights = PeakBlock(nbytes=MIB, count=100, made="weights")
    mask = PeakBlock(nbytes=512, count=1, made="attention.py:38")
    memory = Memory(tensors_peak_bytes=100 * MIB + 512, peak_blocks=(weights, mask))
    predicted = Predicted(tensors_peak_bytes=100 * MIB, peak_blocks=(weights,))
    (said,) = mispredictions(result(memory=memory, predicted=predicted))
    assert said == "against the prediction, the measured peak has one block of 512 bytes more (attention.py:38)"
    assert mispredictions(result(memory=memory, predicted=Predicted())) == []


def test_less_memory_than_predicted_is_as_suspect() -> None:
    peak, saved = alone(60 * MIB, 20 * MIB)
    assert "60.0 MiB" in peak
    assert saved.startswith("the memory saved for backward is 20.0 MiB, but 50.0 MiB was predicted: the step may leave")


def test_a_small_buffer_of_a_kernel_is_silent() -> None:
    assert alone(80_000, 1000, tensors_peak_bytes=50_000, saved_bytes=1000) == []
    assert len(alone(90_000, 1000, tensors_peak_bytes=50_000, saved_bytes=1000)) == 1


def test_without_a_prediction_nothing_is_mentioned() -> None:
    measured = Memory(tensors_peak_bytes=MIB, saved_bytes={"aten.mm": MIB})
    assert mispredictions(result(memory=measured)) == []
    assert mispredictions(result(memory=measured, predicted=Predicted())) == []
    assert mispredictions(result(predicted=Predicted(**HONEST))) == []
    assert mispredictions(result(predicted=Predicted(ranks=(PredictedRank(tensors_peak_bytes=1, sent_bytes=1),)))) == []


def test_the_rank_is_named() -> None:
    (said,) = over_two(saved_bytes=80 * MIB)
    assert said.startswith("the memory saved for backward on rank 1 is 80.0 MiB, but 50.0 MiB was predicted")


@pytest.mark.parametrize("changes", [{"payload_bytes": 7 * MIB}, {"count": 4}, {"payload_bytes": 5 * MIB}])
def test_a_collective_that_is_not_the_predicted_one_is_mentioned(changes: dict[str, int]) -> None:
    (said,) = over_two(sent=(SENT.model_copy(update=changes),))
    assert said.startswith("all_reduce over dp has a payload of ")
    assert "on rank 1, but 6.00 MiB in 3 calls was predicted" in said
    assert ("more than it needs" in said) is (changes != {"payload_bytes": 5 * MIB})


def test_a_collective_that_is_missing_or_new_is_mentioned() -> None:
    (new,) = over_two(sent=(SENT, SENT.model_copy(update={"collective": "broadcast"})))
    assert new.startswith("broadcast over dp has a payload of 6.00 MiB in 3 calls on rank 1, but 0 B in 0 calls")
    (missing,) = over_two(sent=(EXCHANGED,), predicted_sent=(SENT, EXCHANGED))[:1]
    assert "some communication may be left out" in missing


def test_only_calls_of_routed_rows_are_compared() -> None:
    more = EXCHANGED.model_copy(update={"payload_bytes": 9 * MIB})
    assert over_two(MIXTURE, predicted_sent=(EXCHANGED,), sent=(more,), saved_bytes=80 * MIB) == []
    assert len(over_two(predicted_sent=(EXCHANGED,), sent=(more,))) == 1
    often = EXCHANGED.model_copy(update={"count": 7})
    assert len(over_two(MIXTURE, predicted_sent=(EXCHANGED,), sent=(often,))) == 1
    assert len(over_two(MIXTURE, saved_bytes=80 * MIB)) == 1


WORKSPACE = "cuBLAS's workspace of autograd's thread"


def block(nbytes: int, count: int, made: str) -> PeakBlock:
    return PeakBlock(nbytes=nbytes, count=count, made=made)


WEIGHTS, MLP, GRADIENT = block(4 * MIB, 3, "weights"), block(MIB, 2, "saved: MLP"), block(MIB, 1, "gradients")
PREDICTED = (WEIGHTS, MLP, GRADIENT, block(4, 9, "counts"))
MEASURED = (block(4 * MIB, 3, "before the step"), block(MIB, 3, "mlp.py:21"), block(4, 9, "gradients.py:3"))


def test_equal_blocks_have_other_makers_and_no_sentence() -> None:
    assert differing_blocks(MEASURED, PREDICTED) == ()
    assert differing_text(MEASURED, PREDICTED) == ""


def test_a_block_that_was_not_predicted_is_named_by_what_made_it() -> None:
    more = (*MEASURED, block(32 * MIB, 1, WORKSPACE))
    assert differing_text(more, PREDICTED) == f"one block of 33,554,432 bytes more ({WORKSPACE})"


def test_missing_blocks_are_named_by_every_part_that_has_their_size() -> None:
    fewer = (*MEASURED[:1], block(MIB, 1, "mlp.py:21"), *MEASURED[2:])
    (one,) = differing_blocks(fewer, PREDICTED)
    assert (one.nbytes, one.count) == (MIB, -2)
    assert differing_text(fewer, PREDICTED) == "2 blocks of 1,048,576 bytes less (saved: MLP or gradients)"


def test_the_most_bytes_come_first_and_further_sizes_are_counted() -> None:
    odd = tuple(block(size, count, "a.py:1") for size, count in ((8, 100), (16, 2), (64, 1), (600, 1), (700, 1)))
    text = differing_text((*MEASURED, *odd), PREDICTED)
    named = "100 blocks of 8 bytes more (a.py:1), one block of 700 bytes more (a.py:1), one block of 600 bytes more"
    assert text == f"{named} (a.py:1) and blocks of 2 other sizes"


def test_a_peak_without_known_blocks_is_not_compared() -> None:
    assert differing_text((), PREDICTED) == differing_text(MEASURED, ()) == ""
