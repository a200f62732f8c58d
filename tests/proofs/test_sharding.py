"""Pieces of weights by torch's chunks: uneven, empty, divided by two axes; and weights that are divided otherwise."""

import pytest
import torch

from assay.config import ResolvedRun, TrainingConfig
from assay.optimizations.data_parallel import DataParallel
from assay.proofs.sharding import chunk, divided_as, message_bytes, piece_shape, summed_once, wrong_share
from assay.records.trace import HeldParameter, Phase, Trace, TracedCommunication
from support.traces import EMPTY, altered

RANKS = {"pp": 1, "dp": 3, "cp": 1, "tp": 2}


def held(whole: tuple[int, ...], dimensions: dict[str, int], place: dict[str, int]) -> HeldParameter:
    bare = HeldParameter(name="w", held_bytes=0, whole_bytes=0, whole_shape=whole, dimensions=dimensions)
    shape = piece_shape(bare, RANKS, place)
    size = torch.empty(shape).nbytes
    return bare.model_copy(
        update={
            "shape": shape,
            "held_bytes": size,
            "whole_bytes": torch.empty(whole).nbytes,
            "divided_over": tuple(dimensions),
        }
    )


def trace_of(one: HeldParameter, place: dict[str, int]) -> Trace:
    return altered(EMPTY, parameters=(one,), ranks=RANKS, place=place)


@pytest.mark.parametrize("length", [1, 2, 3, 7, 9])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_chunks_are_torchs(length: int, ranks: int) -> None:
    torchs = [len(one) for one in torch.empty(length).chunk(ranks)]
    assert [chunk(length, ranks, index) for index in range(ranks)] == torchs + [0] * (ranks - len(torchs))


def test_the_innermost_axis_divides_first() -> None:
    one = HeldParameter(name="w", held_bytes=0, whole_bytes=0, whole_shape=(10, 4), dimensions={"dp": 0, "tp": 0})
    assert piece_shape(one, RANKS, {"pp": 0, "dp": 2, "cp": 0, "tp": 0}) == (1, 4)


def test_a_weight_counts_where_it_is_divided_as_promised() -> None:
    place = {"pp": 0, "dp": 1, "cp": 0, "tp": 0}
    one = held((7, 4), {"dp": 0}, place)
    trace = trace_of(one, place)
    assert divided_as(trace, [one], "dp", lambda _: 0) == 1
    assert divided_as(trace, [one], "dp", lambda _: 1) == 0
    assert divided_as(trace, [one], "dp", lambda _: None) == 0
    assert divided_as(trace, [one], "tp", lambda _: None) == 1
    whole = one.model_copy(update={"shape": (7, 4), "held_bytes": 112})
    assert divided_as(trace, [whole], "dp", lambda _: 0) == 0


def test_a_padded_storage_of_a_short_chunk_counts() -> None:
    place = {"pp": 0, "dp": 2, "cp": 0, "tp": 0}
    one = held((7, 4), {"dp": 0}, place)
    assert (one.shape, one.held_bytes) == ((1, 4), 16)
    padded = one.model_copy(update={"held_bytes": 48})
    assert divided_as(trace_of(one, place), [padded], "dp", lambda _: 0) == 1
    more = one.model_copy(update={"held_bytes": 64})
    assert divided_as(trace_of(one, place), [more], "dp", lambda _: 0) == 0


REPLICAS = {"pp": 1, "dp": 2, "cp": 1, "tp": 1}
RUN = ResolvedRun(training=TrainingConfig(batch_size=8))
WEIGHT = HeldParameter(name="w", held_bytes=400, whole_bytes=400)


def trace_with(*sent: tuple[str, Phase, int], sequences: int = 4, pp: int = 1) -> Trace:
    communications = tuple(
        TracedCommunication(collective=name, axis="dp", phase=phase, count=1, payload_bytes=size)
        for name, phase, size in sent
    )
    ranks = {**REPLICAS, "pp": pp}
    return altered(EMPTY, parameters=(WEIGHT,), ranks=ranks, communications=communications, sequences=sequences)


SUMMED: tuple[str, Phase, int] = ("all_reduce", "backward", 400)


@pytest.mark.parametrize(("sequences", "says"), [(4, ""), (8, "; 8 of the batch's 8 sequences on this rank of 2")])
def test_a_rank_takes_its_share_of_the_batch(sequences: int, says: str) -> None:
    assert wrong_share(trace_with(sequences=sequences), RUN) == says


def test_the_share_is_of_the_sequences_that_are_left() -> None:
    half = RUN.model_copy(update={"batch_divisor": 2})
    assert wrong_share(trace_with(sequences=2), half) == ""
    assert wrong_share(trace_with(sequences=4), half) != ""


@pytest.mark.parametrize(
    ("trace", "exact"),
    [
        (trace_with(SUMMED), True),
        (trace_with(), False),
        (trace_with(SUMMED, SUMMED), False),
        (trace_with(("all_reduce", "forward", 400)), False),
        (trace_with(("all_reduce", "forward", 412), pp=2), True),
        (trace_with(("all_reduce", "forward", 812), pp=2), False),
    ],
)
def test_gradients_are_summed_once(trace: Trace, exact: bool) -> None:
    assert summed_once(trace, RUN)[1] is exact


@pytest.mark.parametrize("collective", ["broadcast", "all_gather"])
def test_whole_replicas_send_no_weights(collective: str) -> None:
    assert DataParallel().verify(trace_with(SUMMED), RUN).verdict
    sent = DataParallel().verify(trace_with(SUMMED, (collective, "update", 400)), RUN)
    assert not sent.verdict
    assert "400 bytes broadcast or gathered in the update" in sent.observed
    assert not DataParallel().verify(trace_with(SUMMED, sequences=8), RUN).verdict


def test_a_message_has_the_padding_of_each_weight() -> None:
    odd = HeldParameter(name="w", held_bytes=0, whole_bytes=48, whole_shape=(3, 4), dimensions={"dp": 0})
    even = odd.model_copy(update={"whole_bytes": 64, "whole_shape": (4, 4)})
    trace = altered(EMPTY, ranks={"dp": 2}, place={"dp": 1})
    assert message_bytes(trace, [odd]) == message_bytes(trace, [even]) == 64
    assert message_bytes(trace, []) == 0
