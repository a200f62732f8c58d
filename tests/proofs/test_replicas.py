"""Replicas with the whole batch, or with gradients that are summed twice or never, are seen in a trace."""

import pytest

from assay.config import ResolvedRun, TrainingConfig
from assay.optimizations.data_parallel import DataParallel
from assay.proofs.replicas import summed_once, wrong_share
from assay.records.trace import HeldParameter, Phase, Trace, TracedCommunication
from support.traces import EMPTY, altered

RANKS = {"pp": 1, "dp": 2, "cp": 1, "tp": 1}
RUN = ResolvedRun(training=TrainingConfig(batch_size=8))
WEIGHT = HeldParameter(name="w", held_bytes=400, whole_bytes=400)


def trace_of(*sent: tuple[str, Phase, int], sequences: int = 4, pp: int = 1) -> Trace:
    communications = tuple(
        TracedCommunication(collective=name, axis="dp", phase=phase, count=1, payload_bytes=size)
        for name, phase, size in sent
    )
    ranks = {**RANKS, "pp": pp}
    return altered(EMPTY, parameters=(WEIGHT,), ranks=ranks, communications=communications, sequences=sequences)


SUMMED: tuple[str, Phase, int] = ("all_reduce", "backward", 400)


@pytest.mark.parametrize(("sequences", "says"), [(4, ""), (8, "; 8 of the batch's 8 sequences on this rank of 2")])
def test_a_rank_takes_its_share_of_the_batch(sequences: int, says: str) -> None:
    assert wrong_share(trace_of(sequences=sequences), RUN) == says


def test_the_share_is_of_the_sequences_that_are_left() -> None:
    half = RUN.model_copy(update={"batch_divisor": 2})
    assert wrong_share(trace_of(sequences=2), half) == ""
    assert wrong_share(trace_of(sequences=4), half) != ""


@pytest.mark.parametrize(
    ("trace", "exact"),
    [
        (trace_of(SUMMED), True),
        (trace_of(), False),
        (trace_of(SUMMED, SUMMED), False),
        (trace_of(("all_reduce", "forward", 400)), False),
        (trace_of(("all_reduce", "forward", 412), pp=2), True),
        (trace_of(("all_reduce", "forward", 812), pp=2), False),
    ],
)
def test_gradients_are_summed_once(trace: Trace, exact: bool) -> None:
    assert summed_once(trace, RUN)[1] is exact


@pytest.mark.parametrize("collective", ["broadcast", "all_gather"])
def test_whole_replicas_send_no_weights(collective: str) -> None:
    assert DataParallel().verify(trace_of(SUMMED), RUN).verdict
    sent = DataParallel().verify(trace_of(SUMMED, (collective, "update", 400)), RUN)
    assert not sent.verdict
    assert "400 bytes broadcast or gathered in the update" in sent.observed
    assert not DataParallel().verify(trace_of(SUMMED, sequences=8), RUN).verdict
