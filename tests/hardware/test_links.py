"""Links: peaks as printed, the choice by axis against every group of the mesh, and the share of a node's ports."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.config.mesh import AXES, Mesh
from assay.hardware import links
from assay.hardware.links import INFINIBAND_HDR, LINKS, NVLINK_A100, Network, inside_node

DEGREES = st.integers(1, 4)
SELENE = Network(inner=NVLINK_A100, outer=INFINIBAND_HDR, ranks_per_node=8)


def test_every_link_has_its_source() -> None:
    assert len({link.name for link in LINKS}) == len(LINKS)
    assert all(len(link.source) > 20 for link in LINKS)


@pytest.mark.parametrize(
    ("link", "printed"),
    [("NVLINK_A100", 600), ("NVLINK_H100", 900), ("NVLINK_H200", 900), ("PCIE_4", 64), ("PCIE_5", 128)],
)
def test_datasheets_print_both_directions(link: str, printed: float) -> None:
    # PCIe's 64 and 128 GB/s are before its line code of 128b/130b.
    assert 2 * getattr(links, link).bandwidth_bytes == pytest.approx(printed * 1e9, rel=0.016)


@given(DEGREES, DEGREES, DEGREES, DEGREES, st.integers(1, 40), st.sampled_from(AXES))
def test_a_node_holds_a_group_or_cuts_it(pp: int, dp: int, cp: int, tp: int, per_node: int, axis: str) -> None:
    mesh = Mesh(pp, dp, cp, tp)
    seen = all(len({rank // per_node for rank in group}) == 1 for group in mesh.groups(axis))
    assert inside_node(mesh, axis, per_node) == seen


@given(DEGREES, DEGREES, DEGREES, DEGREES, st.integers(1, 40))
def test_joined_axes_are_one_group(pp: int, dp: int, cp: int, tp: int, per_node: int) -> None:
    joined = inside_node(Mesh(pp, dp, cp, tp), "dp+cp", per_node)
    assert joined == inside_node(Mesh(pp, dp * cp, 1, tp), "dp", per_node)


def test_tensor_groups_use_the_inner_link() -> None:
    mesh = Mesh(pp=8, dp=24, tp=8)
    assert SELENE.link(mesh, "tp") is NVLINK_A100
    assert SELENE.link(mesh, "pp").bandwidth_bytes == SELENE.link(mesh, "dp").bandwidth_bytes == 25e9


def test_a_group_has_its_share_of_the_ports() -> None:
    # Two nodes, one group: its ring crosses between them on all eight ports at once.
    assert SELENE.link(Mesh(dp=16), "dp").bandwidth_bytes == 8 * 25e9
    assert SELENE.link(Mesh(dp=8, tp=2), "dp").bandwidth_bytes == 4 * 25e9
    one_port = SELENE.model_copy(update={"ports_per_node": 1})
    assert one_port.link(Mesh(dp=16), "dp").bandwidth_bytes == 25e9
    assert one_port.link(Mesh(dp=2, tp=8), "dp").bandwidth_bytes == 25e9 / 8
    # Never more than the links inside, through which it also goes.
    slow = SELENE.model_copy(update={"inner": links.PCIE_4})
    assert slow.link(Mesh(dp=16), "dp").bandwidth_bytes == links.PCIE_4.bandwidth_bytes
    # A pipeline sends from one rank to one rank.
    assert SELENE.link(Mesh(pp=16), "pp").bandwidth_bytes == 25e9


def test_seconds_are_latencies_and_bytes() -> None:
    assert NVLINK_A100.seconds(300e9) == pytest.approx(1, rel=1e-5)
    assert NVLINK_A100.seconds(0, steps=14) == pytest.approx(14 * 3.4e-6)
