"""Norms of queries and keys: the model that is configured so, whatever its positions and groups."""

from pathlib import Path
from typing import Any

import pytest

from assay.config import Spec
from support.configured import assert_as_configured, assert_proven_only_where_applied, assert_read_back, assert_refused
from support.peaks import assert_exact
from support.runs import SHAPE

NORM = Spec(name="qk_norm")
GROUPED = {"position": "rotary", "n_kv_head": 1, "tie_embeddings": False}
LONG = {"n_layer": 2, "n_head": 2, "n_embd": 32, "context_length": 64, "vocab_size": 40}


@pytest.mark.parametrize("others", [(), (Spec(name="sdpa_attention"),)], ids=len)
def test_it_is_predicted_and_trained_as_a_model_that_is_configured_so(others: tuple[Spec, ...]) -> None:
    assert_as_configured(NORM, others, qk_norm=True)


def test_heads_may_be_grouped_and_rotated() -> None:
    shape = SHAPE.model_copy(update=GROUPED)
    assert_as_configured(NORM, (), shape, qk_norm=True)


def test_it_is_proven_where_it_was_applied_and_only_there() -> None:
    assert_proven_only_where_applied(NORM, "8 gains of queries and keys, 512 bytes, in 4 blocks")


def test_a_trained_model_is_read_with_them(tmp_path: Path) -> None:
    assert_read_back(NORM, tmp_path)


@pytest.mark.parametrize(
    ("stack", "changes"),
    [
        ("qk_norm", {}),
        ("qk_norm+weight_tying", GROUPED),
        ("qk_norm+squared_relu+logit_softcap+bf16_mixed", {"dropout": 0.1}),
        ("qk_norm+activation_checkpointing", {"n_embd": 64}),
    ],
)
def test_the_peak_is_the_measured_one(stack: str, changes: dict[str, Any]) -> None:
    assert_exact({**LONG, **changes}, 4, stack)


def test_where_it_cannot_add_gains_it_is_refused() -> None:
    assert_refused(NORM, "normalizes queries and keys already; set", qk_norm=True)
    assert_refused(NORM, "does not have; leave out one of them", init_from="somewhere")
