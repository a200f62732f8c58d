"""The slow reference of attention within documents: what it computes by itself, and where."""

import pytest
import torch

from assay.values.by_rows import compute_by_documents
from support.runs import VARIANTS, run_with
from support.steps import build_step

END = 10


def losses(variant: str, ids: torch.Tensor, end: int) -> tuple[float, float]:
    """The summed loss of rows as they are, and by documents; targets are the ids themselves."""
    model = build_step(run_with(model=VARIANTS[variant])).parts[0]
    whole = float(model(ids, ids))
    compute_by_documents(model, end)
    return whole, float(model(ids, ids))


@pytest.mark.parametrize("variant", ["baseline", "rotary"])
def test_rows_without_an_end_are_computed_as_they_are(variant: str) -> None:
    whole, apart = losses(variant, torch.arange(20, 36).repeat(2, 1), END)
    assert apart == pytest.approx(whole, rel=1e-6)


@pytest.mark.parametrize("variant", ["baseline", "rotary"])
def test_a_document_is_computed_at_its_places_in_the_row(variant: str) -> None:
    """Every token is a document: it sees itself alone, so with rotary positions its place has no effect."""
    ids = torch.full((1, 16), END)
    _, apart = losses(variant, ids, END)
    alone = [losses(variant, ids[:, :1], END)[0] * 16, losses(variant, ids, 11)[0]]
    assert (apart == pytest.approx(alone[0], rel=1e-5)) is (variant == "rotary")
