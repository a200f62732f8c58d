"""`assay mesh`: the drawing fits and elides, the JSON is whole, and bad input is one sentence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.config.mesh import Mesh
from assay.report.mesh import mesh_lines
from cli.conftest import Assay
from support.imports import HEAVY, imported

SIXTEEN = """\
16 ranks: pp=2 × dp=4 × tp=2; 2 nodes of 8

      dp 0     dp 1     dp 2     dp 3     node
pp 0  [ 0  1]  [ 2  3]  [ 4  5]  [ 6  7]  0
pp 1  [ 8  9]  [10 11]  [12 13]  [14 15]  1

pp divides the layers: 8 groups of 2, across nodes
   (0 8) (1 9) (2 10) (3 11) (4 12) (5 13) (6 14) (7 15)

dp divides the batch: 4 groups of 4, each inside a node
   (0 2 4 6) (1 3 5 7) (8 10 12 14) (9 11 13 15)

tp divides the tensors of a layer: 8 groups of 2, each inside a node
   (0 1) (2 3) (4 5) (6 7) (8 9) (10 11) (12 13) (14 15)
"""


def test_sixteen_ranks_are_drawn_whole(assay: Assay) -> None:
    said = assay("mesh", "--world", "16", "--tp", "2", "--pp", "2", "--ranks-per-node", "8")
    assert said.code == 0
    assert said.out == SIXTEEN


def test_json_is_the_mesh(assay: Assay) -> None:
    value = assay(
        "mesh", "--world", "16", "--tp", "2", "--pp", "2", "--cp", "2", "--ranks-per-node", "8", "--json"
    ).value
    mesh = Mesh(pp=2, dp=2, cp=2, tp=2)
    assert value["world"] == 16
    assert value["degrees"] == {"pp": 2, "dp": 2, "cp": 2, "tp": 2}
    assert value["ranks"][13] == {"rank": 13, **mesh.at(13), "node": 1}
    assert value["groups"] == {axis: [list(group) for group in mesh.groups(axis)] for axis in ("pp", "dp", "cp", "tp")}
    assert value["nodes"] == [list(range(8)), list(range(8, 16))]
    assert value["inside_node"] == {"pp": False, "dp": True, "cp": True, "tp": True}
    bare = assay("mesh", "--world", "2", "--json").value
    assert bare["ranks"] == [{"rank": r, "pp": 0, "dp": r, "cp": 0, "tp": 0} for r in range(2)]
    assert "nodes" not in bare


def test_groups_that_are_left_out_are_named() -> None:
    lines = list(mesh_lines(Mesh(pp=64, dp=6, tp=8), 8, width=80))
    assert lines[0] == "3072 ranks: pp=64 × dp=6 × tp=8; 384 nodes of 8"
    assert lines[3] == "pp 0   [   0    1 …    7]  [   8    9 …   15]  …  [  40   41 …   47]  0–5"
    assert lines[-1] == "   (0 1 … 7) (8 9 … 15) (16 17 … 23) (24 25 … 31) … (3064 3065 … 3071)"
    assert len(lines) < 40
    assert next(mesh_lines(Mesh())) == "1 rank"
    assert "   (0 1 2 3)" in mesh_lines(Mesh(dp=4))


@given(*[st.integers(1, 20)] * 3, st.integers(1, 9), st.booleans(), st.sampled_from([80, 120]))
def test_a_drawing_fits(pp: int, dp: int, cp: int, tp: int, nodes: bool, width: int) -> None:
    mesh = Mesh(pp, dp, cp, tp)
    lines = list(mesh_lines(mesh, mesh.size if nodes else None, width=width))
    assert max(map(len, lines)) <= width
    # The first rank and the last are in every list of groups.
    listed = [line for line in lines if line.startswith("   (")]
    assert len(listed) == sum(degree > 1 for degree in mesh.shape)
    for line in listed:
        assert line.startswith("   (0 ")
        assert line.endswith(f" {mesh.size - 1})")


def test_a_million_ranks_are_drawn_at_once() -> None:
    lines = list(mesh_lines(Mesh(pp=64, dp=128, cp=16, tp=8), 8, width=120))
    assert max(map(len, lines)) <= 120


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--world", "16", "--tp", "3"], "tp=3 needs a multiple of 3 ranks, and there are 16"),
        (["--world", "4", "--tp", "2", "--cp", "4"], "cp=4 × tp=2 need a multiple of 8 ranks"),
        (["--world", "0"], "at least one"),
        (["--world", "16", "--tp", "0"], "give a degree of at least 1"),
        (["--world", "16", "--ranks-per-node", "3"], "do not fill nodes of 3"),
        (["--world", "16", "--ranks-per-node", "0"], "do not fill nodes of 0"),
        (["--world", "2000000"], "give at most 1048576"),
        (["--world", "many"], "--world"),
        ([], "--world"),
    ],
)
def test_bad_input_is_one_sentence(assay: Assay, words: list[str], says: str) -> None:
    said = assay("mesh", *words)
    assert said.code == 2
    assert says in said.sentence()


def test_it_imports_nothing_heavy() -> None:
    seen = imported("-m", "assay.cli.main", "mesh", "--world", "16", "--tp", "2", "--ranks-per-node", "8")
    assert not seen & HEAVY
