"""A mesh as text: a row for each pipeline stage, a column for each data index, and the groups of each axis below.

A drawing fits the terminal, or 120 columns in a pipe or a file. If there are more entries, the first ones and the last
are shown with an ellipsis between them. Only shown entries are computed, so a million ranks take no longer than
sixteen. Drawings are aligned in a pipe too; figures for a program are those of `--json`.
"""

import shutil
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from assay.config.mesh import AXES, Mesh, nodes
from assay.hardware.links import inside_node
from assay.report.kit.view import Shown

_STAGES, _FEW_STAGES = 16, 6
"""Most rows of a full drawing, and of a short one."""
_DETAILS = ((8, 4), (4, 4), (4, 3), (3, 3))
"""Most entries of a tensor group, and most context indices, in a cell; the first pair that fits two cells is used."""
DIVIDES = {"pp": "the layers", "dp": "the batch", "cp": "each sequence", "tp": "the tensors of a layer"}
"""The part of a step that each axis divides, in words."""


class MeshView(Shown[Mesh]):
    """A mesh, as a reader is shown it: alone, or over nodes of so many ranks."""

    def __init__(self, found: Mesh, ranks_per_node: int | None = None) -> None:
        super().__init__(found)
        self._per_node = ranks_per_node

    def blocks(self) -> Iterator[str]:
        """Yield the lines of the drawing, as wide as the terminal."""
        return mesh_lines(self.found, self._per_node)

    def values(self) -> dict[str, Any]:
        """Return the place of each rank, and the groups of each axis, for programs."""
        mesh, each = self.found, self._per_node
        value: dict[str, Any] = {
            "world": mesh.size,
            "degrees": {axis: mesh.degree(axis) for axis in AXES},
            "ranks": [{"rank": rank, **mesh.at(rank), **self._node(rank)} for rank in range(mesh.size)],
            "groups": {axis: mesh.groups(axis) for axis in AXES},
        }
        if each is not None:
            value["nodes"] = [list(node) for node in nodes(mesh, each)]
            value["inside_node"] = {axis: inside_node(mesh, axis, each) for axis in AXES}
        return value

    def _node(self, rank: int) -> dict[str, int]:
        return {} if self._per_node is None else {"node": rank // self._per_node}


def divided_parts(axes: Iterable[str]) -> str:
    """Name the parts that several axes divide together, such as ``"the batch and each sequence"``."""
    return " and ".join(DIVIDES[axis] for axis in axes)


def mesh_lines(mesh: Mesh, ranks_per_node: int | None = None, width: int | None = None) -> Iterator[str]:
    """Yield lines of at most `width` characters; None is the width of the terminal."""
    width = width or _terminal()
    yield from rank_lines(mesh, ranks_per_node, width, _STAGES)
    for axis in AXES:
        if mesh.degree(axis) > 1:
            yield ""
            yield from _groups(mesh, axis, ranks_per_node, width)


def rank_lines(
    mesh: Mesh, ranks_per_node: int | None = None, width: int | None = None, stages: int = _FEW_STAGES
) -> Iterator[str]:
    """Yield the ranks without the groups, with `stages` stages at most."""
    title = f"{mesh.size} ranks: {mesh}" if mesh.size > 1 else "1 rank"
    if ranks_per_node is not None:
        count = mesh.size // ranks_per_node
        title += f"; {count} {'node' if count == 1 else 'nodes'} of {ranks_per_node}"
    yield title
    yield ""
    yield from _ranks(mesh, ranks_per_node, width or _terminal(), stages)


def _terminal() -> int:
    return shutil.get_terminal_size((120, 24)).columns


def _ranks(mesh: Mesh, per_node: int | None, width: int, stages: int) -> Iterator[str]:
    shown, detail = _shown(mesh, per_node, width)
    rows = [["", *("…" if dp is None else f"dp {dp}" for dp in shown), *(["node"] if per_node else [])]]
    for pp in _few(range(mesh.pp), stages):
        if pp is None:
            rows.append(["…"] * len(rows[0]))
            continue
        row = [f"pp {pp}", *("…" if dp is None else _cell(mesh, pp, dp, detail) for dp in shown)]
        if per_node:
            stage = mesh.size // mesh.pp
            first, last = pp * stage // per_node, ((pp + 1) * stage - 1) // per_node
            row.append(str(first) if first == last else f"{first}–{last}")
        rows.append(row)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(text.ljust(size) for text, size in zip(row, widths, strict=True)).rstrip()


def _shown(mesh: Mesh, per_node: int | None, width: int) -> tuple[list[int | None], tuple[int, int]]:
    """Return the data indices that fit side by side, and the detail of a cell with which they fit."""
    taken = len(f"pp {mesh.pp - 1}") + (2 + 2 * len(str(mesh.size)) if per_node else 0)
    for detail in _DETAILS:
        cell = 2 + max(len(_cell(mesh, 0, mesh.dp - 1, detail)), len(f"dp {mesh.dp - 1}"))
        if taken + mesh.dp * cell <= width:
            return list(range(mesh.dp)), detail
        fitting = (width - taken - len("  …")) // cell
        if fitting >= 2:
            return [*range(fitting - 1), None, mesh.dp - 1], detail
    return [0, None], detail


def _cell(mesh: Mesh, pp: int, dp: int, detail: tuple[int, int]) -> str:
    """Format the ranks at a stage and a data index; brackets enclose a tensor group, one for each context index."""
    tensors, contexts = detail
    digits = len(str(mesh.size - 1))
    groups = []
    for cp in _few(range(mesh.cp), contexts):
        first = mesh.rank({"pp": pp, "dp": dp, "cp": cp or 0})
        shown = _few(range(first, first + mesh.tp), tensors)
        text = " ".join("…" if rank is None else str(rank).rjust(digits) for rank in shown)
        groups.append("…" if cp is None else f"[{text}]" if mesh.tp > 1 else text)
    return " ".join(groups)


def _groups(mesh: Mesh, axis: str, per_node: int | None, width: int) -> Iterator[str]:
    degree = mesh.degree(axis)
    count = mesh.size // degree
    said = f"{axis} divides {DIVIDES[axis]}: {count} {'group' if count == 1 else 'groups'} of {degree}"
    if per_node is not None:
        said += ", each inside a node" if inside_node(mesh, axis, per_node) else ", across nodes"
    yield said
    room = width - 3
    share = room // min(count, 3) - 3
    last = _group(mesh, axis, mesh.size - 1, share)
    line: list[str] = []
    for rank in (rank for rank in range(mesh.size) if mesh.at(rank)[axis] == 0):
        text = _group(mesh, axis, rank, share)
        left = count - len(line) - 1
        # Room for the rest of the line: nothing, the last group, or an ellipsis and the last group.
        behind = 0 if left == 0 else len(last) + (1 if left == 1 else 3)
        if line and len(" ".join([*line, text])) + behind > room:
            line += ["…", last]
            break
        line.append(text)
    yield "   " + " ".join(line)


def _group(mesh: Mesh, axis: str, rank: int, share: int) -> str:
    """Format the ranks that differ from `rank` along the axis only, in about `share` characters."""
    place, digits = mesh.at(rank), len(str(mesh.size - 1))
    shown = _few(range(mesh.degree(axis)), max(3, share // (digits + 1)))
    members = ("…" if index is None else str(mesh.rank({**place, axis: index})) for index in shown)
    return f"({' '.join(members)})"


def _few(indices: Sequence[int], most: int) -> list[int | None]:
    """Return all indices if there are at most `most`; else `most` entries, of which None is the last but one."""
    if len(indices) <= most:
        return list(indices)
    return [*indices[: max(1, most - 2)], None, indices[-1]]
