"""The figures of docs/parallelism.md that show the parts that ranks hold, and their communication."""

from svg import WIDTH, Drawing

from assay.config.mesh import Mesh
from assay.hardware.cluster import Datasheet
from assay.hardware.links import PCIE_4


def data() -> Drawing:
    """Draw replicas that share a batch."""
    drawing = Drawing("Data parallelism: four replicas share a batch and sum their gradients", 262)
    drawing.text(20, 28, "Every rank has the whole model and a quarter of the batch", bold=True)
    for rank in range(4):
        x = 30 + 208 * rank
        drawing.text(x, 58, f"rank {rank}", role="soft", size=12)
        for part in range(4):
            drawing.box(x + 44 * part, 68, 40, 22, "s6" if part == rank else "panel")
        drawing.line(x + 86, 94, x + 86, 112, arrow=True)
        drawing.box(x, 116, 172, 34, "s1", label="whole weights")
        drawing.line(x + 86, 154, x + 86, 172, arrow=True)
        drawing.box(x, 176, 172, 34, "s3", label="gradients of its rows")
        if rank:
            drawing.line(x - 34, 193, x - 2, 193, arrow=True)
    drawing.text(WIDTH / 2, 238, "a ring sums them while backward runs: each rank sends 2 (n−1)/n of their bytes",
                 at="middle", size=12, role="soft")  # fmt: skip
    return drawing


def tensor() -> Drawing:
    """Draw two consecutive matrices: the first is divided by columns, the second by rows."""
    drawing = Drawing("Tensor parallelism: a matrix by columns, the next by rows, and one sum", 290)
    drawing.text(20, 28, "The MLP of a block on two ranks; attention is divided by heads in the same way", bold=True)
    for rank, colour in enumerate(("s1", "s2")):
        y = 52 + 100 * rank
        drawing.text(20, y + 44, f"rank {rank}", role="soft", size=12)
        drawing.box(80, y, 90, 76, "panel", label="x, whole", edge="grid")
        drawing.line(174, y + 38, 204, y + 38, arrow=True)
        for column in range(2):
            drawing.box(208 + 52 * column, y, 50, 76, colour if column == rank else "panel", edge="grid")
        drawing.text(259, y + 92, "up, its columns", size=11, role="soft", at="middle")
        drawing.line(316, y + 38, 346, y + 38, arrow=True)
        drawing.box(350, y, 84, 76, colour, label="half hidden", opacity=0.75)
        drawing.line(438, y + 38, 468, y + 38, arrow=True)
        for row in range(2):
            drawing.box(472, y + 39 * row, 102, 37, colour if row == rank else "panel", edge="grid")
        drawing.text(523, y + 92, "down, its rows", size=11, role="soft", at="middle")
        drawing.line(578, y + 38, 608, y + 38, arrow=True)
        drawing.box(612, y, 84, 76, "s0", label="a summand")
        drawing.line(700, y + 38, 738, 140 if rank else 120, arrow=True)
    drawing.box(742, 94, 98, 74, "s3", label="all-reduce")
    drawing.text(WIDTH / 2, 278, "each block has two such sums of the residual stream in forward, and two in backward",
                 at="middle", size=12, role="soft")  # fmt: skip
    return drawing


def sequence(kept: list[tuple[str, float]]) -> Drawing:
    """Draw where the residual stream is divided by tokens, and the bytes that are saved (`kept`, by name of a case)."""
    drawing = Drawing("Sequence parallelism: between the matrices each rank has a part of the sequence", 380)
    drawing.text(20, 28, "Half a block: divided by tokens, gathered for the matrices, scattered again", bold=True)
    steps = (
        ("norm", "s6", "a part of the tokens"),
        ("all-gather", "s0", "(t−1)/t · 2sbh bytes"),
        ("matrices", "s1", "all tokens, a part of the heads"),
        ("reduce-scatter", "s0", "(t−1)/t · 2sbh bytes"),
        ("dropout, sum", "s6", "a part of the tokens"),
    )
    for place, (label, colour, below) in enumerate(steps):
        x = 20 + 170 * place
        drawing.box(x, 48, 130, 40, colour, label=label)
        drawing.text(x + 65, 106, below, size=11, role="soft", at="middle")
        if place:
            drawing.line(x - 36, 68, x - 4, 68, arrow=True)
    drawing.text(20, 150, "Saved tensors of a GPT-3 layer per sequence and rank, in MB; eight tensor ranks", bold=True)
    most = max(nbytes for _, nbytes in kept)
    for place, (name, nbytes) in enumerate(kept):
        y = 168 + 40 * place
        drawing.text(20, y + 18, name)
        drawing.box(250, y, 530 * nbytes / most, 26, "s4")
        drawing.text(258 + 530 * nbytes / most, y + 18, f"{nbytes / 1e6:,.0f}")
    return drawing


def context() -> Drawing:
    """Draw the ring of keys and values, and the causal triangle, divided in pairs of chunks."""
    drawing = Drawing("Context parallelism: keys and values move around a ring, and causal work is divided evenly", 330)
    colours = ("s1", "s2", "s3", "s4")
    drawing.text(20, 28, "A sequence in eight chunks, two on each of four ranks", bold=True)
    owners = [chunk if chunk < 4 else 7 - chunk for chunk in range(8)]
    for chunk, owner in enumerate(owners):
        drawing.box(20 + 46 * chunk, 48, 44, 24, colours[owner], label=str(chunk))
    drawing.text(20, 94, "rank 0 has the first and the last, and so on inwards", size=12, role="soft")
    for rank in range(4):
        x = 20 + 96 * rank
        drawing.box(x, 130, 66, 40, colours[rank], label=f"rank {rank}")
        if rank < 3:
            drawing.line(x + 70, 150, x + 92, 150, arrow=True)
    drawing.line(341, 172, 341, 192, "soft")
    drawing.line(341, 192, 53, 192, "soft")
    drawing.line(53, 192, 53, 174, "soft", arrow=True)
    drawing.text(20, 220, "after three sends every rank has had all keys and values;", size=12, role="soft")
    drawing.text(20, 238, "queries and the residual stream are not sent", size=12, role="soft")
    left, top, side = 510, 60, 30
    drawing.text(left, 28, "Attention's scores, by computing rank", bold=True)
    for query in range(8):
        for key in range(8):
            later = key > query
            colour = "panel" if later else colours[owners[query]]
            x, y = left + side * key, top + side * query
            drawing.box(x, y, side - 2, side - 2, colour, opacity=0.55 if key == query else 1)
    drawing.text(left + 4 * side, top - 8, "keys, by chunk", size=12, role="soft", at="middle")
    drawing.text(left - 10, top + 4 * side, "queries", size=12, role="soft", at="end")
    drawing.text(left, 320, "each rank has nine of 36 parts, two of them half", size=12, role="soft")
    return drawing


def expert() -> Drawing:
    """Draw the exchange of tokens with the ranks of their experts."""
    drawing = Drawing("Expert parallelism: tokens are sent to their experts and back", 290)
    drawing.text(20, 28, "Eight experts on four ranks; here the router sends each token to one of them", bold=True)
    colours = ("s1", "s2", "s3", "s4")
    sent = ((0, 2, 1, 3), (1, 0, 3, 2), (2, 2, 0, 1), (3, 1, 1, 0))
    for rank, colour in enumerate(colours):
        y = 56 + 52 * rank
        drawing.text(20, y + 24, f"rank {rank}", size=12, role="soft")
        for token, target in enumerate(sent[rank]):
            drawing.box(80 + 34 * token, y + 6, 30, 28, colours[target])
        arrived = [target for row in sent for target in row if target == rank]
        for place in range(len(arrived)):
            drawing.box(366 + 26 * place, y + 9, 22, 22, colour)
        drawing.box(510, y, 82, 40, colour, label=f"expert {2 * rank}", size=11)
        drawing.box(596, y, 82, 40, colour, label=f"expert {2 * rank + 1}", size=11)
    for x, label in ((230, "all-to-all"), (690, "all-to-all, back")):
        drawing.box(x, 56, 110, 196, "panel", edge="grid")
        drawing.text(x + 55, 158, label, at="middle", size=13)
    drawing.text(150, 280, "tokens, by target rank", size=12, role="soft", at="middle")
    drawing.text(432, 280, "received tokens", size=12, role="soft", at="middle")
    drawing.text(594, 280, "whole experts, never sent", size=12, role="soft", at="middle")
    return drawing


def offload(sheet: Datasheet) -> Drawing:
    """Draw two lengths of a forward: only the longer one hides the copy of the weights."""
    drawing = Drawing("Offload: a block's weights are copied over PCIe while the block before it runs", 300)
    even = sheet.products_flops / PCIE_4.bandwidth_bytes
    drawing.text(20, 28, f"Three blocks of GPT-3 forward on an A100, weights over {PCIE_4.name}", bold=True)
    drawing.key(20, 52, {"copy of a block": "s2", "its products": "s1"}, step=130)
    width = 12288
    copy = 24 * width**2 / PCIE_4.bandwidth_bytes
    scale = (WIDTH - 60) / (5 * copy)
    for place, tokens in enumerate((2048, 8192)):
        y, work = 92 + 96 * place, 24 * width**2 * tokens / sheet.products_flops
        said = f"{tokens:,} tokens: {1000 * copy:.0f} ms to copy, {1000 * work:.0f} ms to compute"
        drawing.text(20, y - 8, said, size=12)
        arrived = ready = 0.0
        for block in range(3):
            # Memory holds two blocks: the copy after the next one waits until a block has finished.
            begin = max(arrived, ready - work) if block else 0.0
            drawing.box(20 + scale * begin, y, scale * copy - 2, 26, "s2", label=f"block {block}", size=11)
            arrived = begin + copy
            start = max(arrived, ready)
            label = f"block {block}" if work * scale > 60 else ""
            drawing.box(20 + scale * start, y + 30, scale * work - 2, 26, "s1", label=label, size=11)
            ready = start + work
    said = f"From {even:,.0f} tokens per pass the copy is hidden: rate over bandwidth, for any width"
    drawing.text(20, 286, said, size=12, role="soft")
    return drawing


def mesh() -> Drawing:
    """Draw sixteen ranks on two nodes, as in `assay mesh --world 16 --tp 2 --pp 2 --ranks-per-node 8`."""
    shape = Mesh(pp=2, dp=4, tp=2)
    drawing = Drawing("Sixteen ranks: two stages, four replicas, two tensor ranks", 330)
    drawing.text(20, 28, "pp=2 × dp=4 × tp=2 on two nodes of eight: rank 2 and the ranks it sends to", bold=True)
    place = {}
    for rank in range(shape.size):
        at = shape.at(rank)
        x, y = 130 + 170 * at["dp"] + 66 * at["tp"], 96 + 124 * at["pp"]
        place[rank] = (x, y)
    for pp in range(2):
        drawing.box(110, 66 + 124 * pp, 690, 104, "panel", edge="grid")
        drawing.text(20, 116 + 124 * pp, f"node {pp}", size=13)
        drawing.text(20, 134 + 124 * pp, f"stage {pp}", size=12, role="soft")
    groups = {"tp": "s1", "dp": "s3", "pp": "s2"}
    colour = dict.fromkeys(place, "s0")
    for axis, shade in groups.items():
        for rank in next(group for group in shape.groups(axis) if 2 in group):
            colour[rank] = shade if rank != 2 else "ink"
    for rank, (x, y) in place.items():
        quiet = colour[rank] == "s0"
        drawing.box(x, y, 58, 44, colour[rank], label=str(rank), size=14, ink="paper", opacity=0.35 if quiet else 1)
    for dp in range(4):
        drawing.text(130 + 170 * dp + 62, 86, f"replica {dp}", size=12, role="soft", at="middle")
    drawing.key(110, 318, {"itself": "ink", "tensor: every layer": "s1", "data: once per step": "s3",
                           "pipeline: every micro-batch": "s2"}, step=165)  # fmt: skip
    return drawing
