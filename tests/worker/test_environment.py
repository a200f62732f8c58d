"""Ranks whose software differs do not begin."""

import platform

import pytest
import torch

from assay.optimizations import Unavailable
from assay.worker.environment import same_versions, versions


def test_equal_versions_pass() -> None:
    own = versions()
    assert (own["torch"], own["python"]) == (torch.__version__, platform.python_version())
    same_versions([own])
    same_versions([own, dict(own), dict(own)])


@pytest.mark.parametrize("name", ["assay", "torch", "python"])
def test_a_rank_with_another_version_is_named_with_both(name: str) -> None:
    own = versions()
    says = f"rank 2 has {name} 0.0.1, and rank 0 has {name} {own[name]}; install the same version on all hosts"
    with pytest.raises(Unavailable) as caught:
        same_versions([own, own, {**own, name: "0.0.1"}, own])
    assert str(caught.value) == says


def test_a_rank_of_a_version_that_says_less_is_named() -> None:
    own = versions()
    with pytest.raises(Unavailable, match="rank 1 has python None"):
        same_versions([own, {key: value for key, value in own.items() if key != "python"}])
