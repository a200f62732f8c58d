"""Collectives: the closed forms against rings that are run message by message, and the published factors."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.config.mesh import Mesh
from assay.cost.collectives import COLLECTIVES, Communication, handed_bytes, sent_by_axis, sent_bytes, steps

RANKS = st.integers(1, 9)


def ring_all_reduce(ranks: int) -> tuple[int, int]:
    """Chunks that each rank sent and steps, in a ring that is run: every rank must hold every sum at the end."""
    held = [[{rank} for _ in range(ranks)] for rank in range(ranks)]
    sent = taken = 0
    for phase in range(2):
        for step in range(ranks - 1):
            before = [[set(chunk) for chunk in rank] for rank in held]
            for rank in range(ranks):
                chunk = (rank - step + phase) % ranks
                held[(rank + 1) % ranks][chunk] |= before[rank][chunk]
            sent, taken = sent + 1, taken + 1
    assert all(chunk == set(range(ranks)) for rank in held for chunk in rank)
    return sent, taken


def ring_all_gather(ranks: int) -> tuple[int, int]:
    """The same of an all-gather."""
    held = [{rank} for rank in range(ranks)]
    sent = 0
    for step in range(ranks - 1):
        for rank in range(ranks):
            held[(rank + 1) % ranks].add((rank - step) % ranks)
        sent += 1
    assert all(one == set(range(ranks)) for one in held)
    return sent, sent


@given(RANKS, st.integers(1, 1000))
def test_rings_send_what_the_forms_say(ranks: int, chunk_bytes: int) -> None:
    payload = chunk_bytes * ranks
    sent, taken = ring_all_reduce(ranks)
    assert sent_bytes("all_reduce", ranks, payload) == sent * chunk_bytes
    assert steps("all_reduce", ranks) == taken
    sent, taken = ring_all_gather(ranks)
    for collective in ("all_gather", "reduce_scatter"):
        assert sent_bytes(collective, ranks, payload) == sent * chunk_bytes
        assert steps(collective, ranks) == taken


@given(RANKS, st.integers(1, 1000))
def test_an_all_to_all_keeps_what_is_its_own(ranks: int, chunk_bytes: int) -> None:
    messages = [(source, target) for source in range(ranks) for target in range(ranks) if source != target]
    assert sent_bytes("all_to_all", ranks, chunk_bytes * ranks) * ranks == len(messages) * chunk_bytes


@pytest.mark.parametrize(
    ("collective", "factor"),
    [
        ("all_reduce", lambda n: Fraction(2 * (n - 1), n)),
        ("reduce_scatter", lambda n: Fraction(n - 1, n)),
        ("all_gather", lambda n: Fraction(n - 1, n)),
        ("broadcast", lambda n: Fraction(1)),
        ("all_to_all", lambda n: Fraction(n - 1, n)),
    ],
)
@pytest.mark.parametrize("ranks", [2, 3, 8, 64])
def test_the_factors_are_those_of_nccl_tests(collective: str, factor: object, ranks: int) -> None:
    """github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md, its summary."""
    payload = 2**30 * 3
    assert sent_bytes(collective, ranks, payload) == pytest.approx(float(factor(ranks) * payload), rel=1e-15)


@given(RANKS, st.integers(1, 10**12))
def test_an_all_reduce_is_a_reduce_scatter_and_an_all_gather(ranks: int, payload: int) -> None:
    parts = ("reduce_scatter", "all_gather")
    assert sent_bytes("all_reduce", ranks, payload) == pytest.approx(sum(sent_bytes(p, ranks, payload) for p in parts))
    assert steps("all_reduce", ranks) == sum(steps(part, ranks) for part in parts)


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_alone_nothing_is_sent(collective: str) -> None:
    assert sent_bytes(collective, 1, 100) == steps(collective, 1) == 0
    alone = Communication(collective, "tp", 100, count=3)
    assert alone.sent_bytes(Mesh()) == alone.handed_bytes(Mesh()) == alone.steps(Mesh()) == 0


def test_only_an_all_gather_hands_over_a_share() -> None:
    assert {one: handed_bytes(one, 4, 100) for one in COLLECTIVES} == {
        one: 25 if one == "all_gather" else 100 for one in COLLECTIVES
    }


def test_a_record_counts_over_its_axes() -> None:
    mesh = Mesh(pp=2, dp=2, cp=2, tp=4)
    gradients = Communication("all_reduce", "dp+cp", 1000, what="gradients")
    weights = Communication("all_gather", "tp", 400, count=10)
    assert gradients.ranks(mesh) == 4
    assert gradients.sent_bytes(mesh) == 1500
    assert gradients.steps(mesh) == 6
    assert weights.sent_bytes(mesh) == 3000
    assert weights.handed_bytes(mesh) == 1000
    assert weights.steps(mesh) == 30
    assert sent_by_axis([gradients, weights, weights], mesh) == {"dp+cp": 1500, "tp": 6000}
    assert sent_by_axis([gradients], Mesh(tp=8)) == {}
