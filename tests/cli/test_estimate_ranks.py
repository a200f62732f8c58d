"""`assay estimate` over ranks: whose figures they are, those that differ, and what is handed over."""

from cli.conftest import Assay

DEMO = ("estimate", "demo", "model.n_layer=4")


def test_it_says_whose_figures_they_are_and_groups_the_alike(assay: Assay) -> None:
    said = assay(*DEMO, "--nproc=4", "--with=pipeline_parallel:degree=2+data_parallel")
    assert said.code == 0
    rows = [line.split("\t") for line in said.out.splitlines()]
    assert rows[0][0].startswith("Its tensors need ")
    assert rows[0][0].endswith(" at the peak on the fullest rank.")
    assert rows[1] == ["one optimizer step", "rank 0 of 4, with the highest peak"]
    by_rank = {row[0]: row[1:] for row in rows}
    heads = by_rank["by rank"]
    first, last = (dict(zip(heads, by_rank[ranks], strict=True)) for ranks in ("0–1", "2–3"))
    assert first["peak of tensors"] == by_rank["peak of tensors"][0]
    assert first["peak of tensors"] > last["peak of tensors"]  # both in MiB
    assert first["idle in the pipeline"].endswith("%")
    handed = {(row[0], row[1]) for row in rows if len(row) == 3 and row[0] in ("send", "all_reduce")}
    assert {("send", "the layers (pp)"), ("all_reduce", "the batch (dp)")} <= handed


def test_one_device_has_no_ranks(assay: Assay) -> None:
    said = assay(*DEMO)
    assert said.out.splitlines()[:2] == ["Its tensors need 14.3 MiB at the peak.", "one optimizer step\t"]
    assert "by rank" not in said.out


def test_json_has_every_rank(assay: Assay) -> None:
    value = assay(*DEMO, "--nproc=2", "--with=pipeline_parallel:degree=2", "--json").value
    assert value["rank"] == 0
    assert len(value["ranks"]) == 2
    assert {one["collective"] for one in value["communications"]} == {"send", "all_reduce"}
