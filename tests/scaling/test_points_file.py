"""Headings of tables that other programs write: their names, their units, and what is said where one is missing."""

import math
from pathlib import Path

import numpy as np
import pytest

from assay.api import scaling
from assay.errors import UsageError
from assay.scaling.points import Points, read_points

ROWS = [(1e6 * (1 + one % 3), 1e7 * (1 + one), 5 - 0.1 * one) for one in range(8)]


def table(place: Path, heading: str, *factors: object) -> Path:
    """A file of N, D and loss with a heading; each factor is a number, or a function of the plain number."""
    convert = [(lambda value, by=one: value / by) if isinstance(one, int | float) else one for one in factors]
    rows = [",".join(repr(act(value)) for act, value in zip(convert, row, strict=True)) for row in ROWS]
    path = place / "points.csv"
    path.write_text("\n".join([heading, *rows]))
    return path


def same(found: Points) -> bool:
    wanted = np.array(ROWS).T
    columns = (found.parameters, found.tokens, found.loss)
    return all(np.allclose(one, other, rtol=1e-9) for one, other in zip(columns, wanted, strict=True))


@pytest.mark.parametrize(
    ("heading", "factors"),
    [
        ("params_total,tokens_trained,val_bpb", (1, 1, math.log(2))),  # nanochat's
        ("model/params,train/tokens,val/loss", (1, 1, 1)),  # an export of W&B
        ("Params (M),Tokens (B),Loss (nats)", (1e6, 1e9, 1)),
        ("N [1e6],D [1e9],loss (bits)", (1e6, 1e9, math.log(2))),
        ("n_params,total_tokens,perplexity", (1, 1, math.exp)),
        ("parameters,tokens,bits per byte", (1, 1, math.log(2))),
    ],
)
def test_headings_of_other_programs_are_known_with_their_units(
    tmp_path: Path, heading: str, factors: tuple[object, ...]
) -> None:
    assert same(read_points(table(tmp_path, heading, *factors)))


def test_a_loss_in_nats_counts_before_one_in_another_unit(tmp_path: Path) -> None:
    path = tmp_path / "points.csv"
    path.write_text("\n".join(["n,d,loss,val_bpb", *(f"{n},{d},{loss},99" for n, d, loss in ROWS)]))
    assert same(read_points(path))


def test_columns_are_named_where_headings_are_not_known(tmp_path: Path) -> None:
    path = table(tmp_path, "wide,long: all,bad", 1e6, 1, math.log(2))
    assert same(read_points(path, named="n=wide:M,d=long: all,loss=bad:bits"))


@pytest.mark.parametrize("loss", ["val_bpb", "train (final) (bits)", "Mean (bpb)"])
def test_a_named_heading_keeps_the_unit_that_it_tells(tmp_path: Path, loss: str) -> None:
    path = table(tmp_path, f"Size (M),Seen [1e9],{loss}", 1e6, 1e9, math.log(2))
    assert same(read_points(path, named=f"n=Size (M),d=Seen [1e9],loss={loss}"))


def test_parentheses_without_a_unit_and_a_unit_that_is_said_count_as_they_are(tmp_path: Path) -> None:
    path = table(tmp_path, "N (non-embedding),D (seen),val_bpb", 1, 1, 1)
    assert same(read_points(path, named="n=N (non-embedding),d=D (seen),loss=val_bpb:nats"))


@pytest.mark.parametrize(
    ("named", "says"),
    [
        (None, "needs a column loss, and two of .*; it has the columns wide, long, bad; name them with --columns n="),
        ("n=wyde,d=long,loss=bad", "has no column 'wyde'; did you mean 'wide'?"),
        ("x=wide", "--columns x=wide names no quantity; write one of n, d, c"),
        ("n=wide:furlongs,d=long,loss=bad", "the column wide has the unit 'furlongs'; write a factor"),
        ("n=wide,d=long,loss=bad:dB", "the loss bad has the unit 'dB'; there are nats, bits and perplexity"),
    ],
)
def test_missing_and_unknown_keys_are_named_with_those_that_are_there(
    tmp_path: Path, named: str | None, says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        read_points(table(tmp_path, "wide,long,bad", 1, 1, 1), named=named)


@pytest.mark.parametrize(
    ("heading", "named", "by_byte"),
    [
        ("n,d,val_bpb", None, "val_bpb"),
        ("n,d,loss (bits per byte)", None, "loss (bits per byte)"),
        ("n,d,bad", "loss=bad:bpb", "bad"),
        ("n,d,bad", "loss=bad:bits", ""),
        ("n,d,loss", None, ""),
        ("n,d,perplexity", None, ""),
    ],
)
def test_a_law_of_losses_per_byte_says_so(tmp_path: Path, heading: str, named: str | None, by_byte: str) -> None:
    found = scaling.fit(table(tmp_path, heading, 1, 1, 1), columns=named, hold_out=False, draws=20)
    assert found.by_byte == by_byte
    said = " ".join(str(block) for block in found.report())
    assert ("the law is in nats per byte" in said) is bool(by_byte)


def test_counts_may_have_a_suffix_or_separated_thousands(tmp_path: Path) -> None:
    forms = (lambda n: f"{n / 1e6:g}M", lambda n: f'"{n:,.0f}"')
    for form in forms:
        rows = [f"{form(n)},{form(d)},{loss}" for n, d, loss in ROWS]
        (tmp_path / "points.csv").write_text("\n".join(["Params,Tokens,Loss", *rows]))
        assert same(read_points(tmp_path / "points.csv"))


@pytest.mark.parametrize(
    ("heading", "row", "says"),
    [
        ("params,tokens,loss", '"44,5",1e9,3', "the column params has '44,5'; write a number"),
        ("params,tokens,loss", '"500,000",1e9,3', "the column params has '500,000'; write a number"),
        ("params,tokens,loss", '1e9,1e9,"3,912"', "the column loss has '3,912'; write a number"),
        ("params,tokens,loss", "1e9,1e9,3M", "the column loss has '3M'; write a number"),
        ("Params (M),tokens,loss", "44M,1e9,3", "has '44M'; write a number"),
    ],
)
def test_a_number_that_may_mean_two_things_is_refused(tmp_path: Path, heading: str, row: str, says: str) -> None:
    (tmp_path / "points.csv").write_text("\n".join([heading, *[row] * 4]))
    with pytest.raises(UsageError, match=says):
        read_points(tmp_path / "points.csv")
