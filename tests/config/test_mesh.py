"""The mesh: ranks, places and groups agree with each other, and with the published layout."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.config.mesh import AXES, Mesh, fill, nodes
from assay.errors import UsageError

DEGREES = st.integers(1, 4)


@given(DEGREES, DEGREES, DEGREES, DEGREES)
def test_places_and_ranks_are_each_other_s_inverse(pp: int, dp: int, cp: int, tp: int) -> None:
    mesh = Mesh(pp, dp, cp, tp)
    assert [mesh.rank(mesh.at(rank)) for rank in range(mesh.size)] == list(range(mesh.size))
    assert len({tuple(mesh.at(rank).values()) for rank in range(mesh.size)}) == mesh.size == pp * dp * cp * tp


@given(DEGREES, DEGREES, DEGREES, DEGREES, st.sampled_from(AXES))
def test_groups_of_an_axis_part_the_world(pp: int, dp: int, cp: int, tp: int, axis: str) -> None:
    mesh = Mesh(pp, dp, cp, tp)
    groups = mesh.groups(axis)
    assert sorted(rank for group in groups for rank in group) == list(range(mesh.size))
    for group in groups:
        places = [mesh.at(rank) for rank in group]
        assert [place[axis] for place in places] == list(range(mesh.degree(axis)))
        assert len({tuple(place[one] for one in AXES if one != axis) for place in places}) == 1


def test_the_published_example() -> None:
    """16 GPUs with tp=2 and pp=4: the groups that Megatron's parallel_state documents (its order is tp-dp-pp)."""
    mesh = fill(16, {"tp": 2, "pp": 4, "dp": None})
    assert mesh == Mesh(pp=4, dp=2, tp=2)
    assert mesh.groups("tp")[:3] == [(0, 1), (2, 3), (4, 5)]
    assert sorted(mesh.groups("dp"))[:4] == [(0, 2), (1, 3), (4, 6), (5, 7)]
    assert sorted(mesh.groups("pp")) == [(0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15)]
    assert str(mesh) == "pp=4 × dp=2 × tp=2"
    assert str(Mesh()) == "one device"


def test_an_open_axis_takes_what_is_left() -> None:
    assert fill(8, {"tp": 2, "dp": None}) == Mesh(dp=4, tp=2)
    assert fill(2, {"tp": 2, "dp": None}) == Mesh(dp=1, tp=2)
    assert fill(1, {}) == Mesh()


@pytest.mark.parametrize(
    ("world", "degrees", "says"),
    [
        (6, {"tp": 4, "dp": None}, "tp=4 needs a multiple of 4 ranks, and there are 6"),
        (8, {"tp": 2, "pp": 2}, "use 4 of 8 ranks"),
        (0, {}, "at least one"),
        (2, {"tp": 0}, "give a degree of at least 1"),
    ],
)
def test_degrees_that_do_not_multiply_are_refused(world: int, degrees: dict[str, int | None], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        fill(world, degrees)


def test_nodes_are_full() -> None:
    assert [list(node) for node in nodes(Mesh(dp=2, tp=4), 4)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    with pytest.raises(UsageError, match="8 ranks do not fill nodes of 3"):
        nodes(Mesh(dp=2, tp=4), 3)


def test_a_rank_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="no rank 4 among 4"):
        Mesh(tp=4).at(4)
