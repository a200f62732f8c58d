"""The α–β model: both ends of it, and the axes of a mesh on their links."""

import pytest

from assay.config.mesh import Mesh
from assay.cost.collectives import Communication
from assay.estimator.alpha_beta import collective_seconds, seconds
from assay.hardware.links import INFINIBAND_HDR, NVLINK_A100, Network

SELENE = Network(inner=NVLINK_A100, outer=INFINIBAND_HDR, ranks_per_node=8)


def test_large_messages_take_bandwidth_and_small_ones_latency() -> None:
    # nccl-tests: t = S/B × 2(n−1)/n.
    assert collective_seconds("all_reduce", 8, 8e9, NVLINK_A100) == pytest.approx(8e9 / 300e9 * 14 / 8, rel=1e-2)
    assert collective_seconds("all_reduce", 8, 8, NVLINK_A100) == pytest.approx(14 * 3.4e-6, rel=1e-4)
    assert collective_seconds("all_reduce", 1, 8e9, NVLINK_A100) == 0


def test_each_axis_goes_over_its_link() -> None:
    mesh = Mesh(pp=2, dp=2, tp=8)
    inner = Communication("all_reduce", "tp", 1e9, count=2)
    outer = Communication("all_reduce", "dp", 1e9)
    alone = Communication("all_gather", "cp", 1e9)
    expected = 2 * collective_seconds("all_reduce", 8, 1e9, NVLINK_A100)
    expected += collective_seconds("all_reduce", 2, 1e9, INFINIBAND_HDR)
    assert seconds([inner, outer, alone], mesh, SELENE) == pytest.approx(expected)
