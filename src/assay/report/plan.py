"""A plan for other machines as text: its mesh, memory and traffic of a rank, and the time of a step."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from assay.estimator.projection import PARTS, Projection
from assay.report.kit.blocks import Block, Table
from assay.report.kit.view import Shown
from assay.report.mesh import divided_parts, rank_lines
from assay.report.predictions import pace_words
from assay.units import format_bytes, format_count, format_flops, format_seconds

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from assay.cost.mesh_layout import Layout


class PlanView(Shown[Projection]):
    """A plan for other machines, as a reader is shown it."""

    def blocks(self) -> Iterator[Block]:
        """Yield the mesh, three short tables, and a sentence on all that is left out."""
        projection = self.found
        yield from rank_lines(projection.plan.layout.mesh, projection.cluster.gpus_per_node)
        yield ""
        yield Table.of(("one optimizer step", ""), _step(projection))
        yield _held(projection)
        yield from _sent(projection)
        yield (
            "The plan is computed from datasheets, with nothing measured. It leaves out overlap, stragglers, the "
            "update and memory traffic. Buffers, gathered weights and fragmentation take several gigabytes more. "
            "docs/numbers.md gives the errors of plans."
        )
        if projection.cluster.nodes * projection.cluster.gpus_per_node == 1:
            yield (
                "For one GPU `assay estimate --device` is nearer, because it follows the operators of the step. A plan "
                "has one rate for all work, so a small model takes up to three times as long as it says."
            )

    def values(self) -> dict[str, Any]:
        """Return the figures of the plan for programs."""
        return self.found.to_dict()

    def frame(self) -> "pandas.DataFrame":
        """Return a row per pipeline stage: bytes that each of its ranks holds, by kind."""
        import pandas

        return pandas.DataFrame([vars(held) for held in self.found.plan.held]).rename_axis("stage")

    def figure(self, name: str = "") -> "Figure":
        """Return the figure of planned memory by pipeline stage and kind."""
        from assay.report.kit.curves import stage_memory

        return stage_memory(self.frame().drop(columns="parameters"))


def _step(projection: Projection) -> Iterator[tuple[str, str]]:
    planned, sheet = projection.plan, projection.cluster.datasheet
    layout = planned.layout
    tokens = projection.training_tokens
    yield "machines", f"{projection.cluster}, {sheet.inner.name} inside a node, {sheet.outer.name} between nodes"
    yield "optimizations", " + ".join(map(str, projection.run.optimizations)) or "none"
    yield "precision", "16-bit products, 32-bit Adam (plans support no other)"
    yield "parameters", format_count(planned.parameters)
    yield "batch", f"{format_count(projection.run.tokens_per_step)} tokens, {_micro_batches(layout)}"
    if layout.mesh.pp > 1:
        yield "pipeline bubble", _bubble(projection)
    yield "step time", format_seconds(planned.step_seconds)
    yield "tokens/s", format_count(planned.tokens_per_second)
    executed, peak = planned.executed_flops, sheet.peak_flops
    yield "work per device", f"{format_flops(executed)}/s including recompute, {executed / peak:.1%} of its peak (HFU)"
    yield "MFU", f"{projection.mfu:.1%}"
    yield f"{format_count(tokens)} tokens", pace_words(projection.training)


def _micro_batches(layout: "Layout") -> str:
    each = f"of {layout.micro_batch} {'sequence' if layout.micro_batch == 1 else 'sequences'}"
    count = layout.micro_batches
    return f"{count} micro-batches {each} per replica" if count > 1 else f"one micro-batch {each} per replica"


def _bubble(projection: Projection) -> str:
    played = f"{projection.plan.bubble:.1%} of forward and backward, including sends and logits"
    formula = projection.bubble_by_formula
    if formula is None:
        return f"{played}; no formula is published for this schedule"
    chunks = projection.plan.layout.chunks
    return f"{played}; (p−1)/({'v' if chunks > 1 else ''}m+p−1) = {formula:.1%}"


def _held(projection: Projection) -> Table:
    stage, held = projection.fullest
    memory = projection.cluster.datasheet.accelerator.memory_bytes
    # The loss is on the last stage only.
    parts = [(part, getattr(held, part)) for part in PARTS if part != "loss" or held.loss]
    rows = [(part, *_amount(nbytes, memory)) for part, nbytes in parts]
    rows.append(("total", *_amount(held.nbytes, memory)))
    rows.append(("does it fit?", f"{'yes' if projection.fits else 'no'}, in {format_bytes(memory)}", ""))
    of = f"memory of a rank at stage {stage}, the highest" if len(projection.plan.held) > 1 else "memory of a rank"
    return Table.of((of, "", "of the device"), rows, ("of the device",))


def _amount(nbytes: float, memory: int) -> tuple[str, str]:
    return format_bytes(nbytes), f"{nbytes / memory:.1%}"


def _sent(projection: Projection) -> Iterator[Table]:
    mesh, sent = projection.plan.layout.mesh, projection.plan.sent_bytes
    rows = []
    for axis, count in sent.items():
        link = projection.link(axis)
        used = [name for name in axis.split("+") if mesh.degree(name) > 1]
        what = dict.fromkeys(one.what for one in projection.plan.communications if one.axis == axis)
        bandwidth = f"{format_bytes(link.bandwidth_bytes)}/s"
        rows.append(("+".join(used), divided_parts(used), ", ".join(what), format_bytes(count), link.name, bandwidth))
    if rows:
        columns = ("axis", "divides", "tensors", "sent by a rank", "link", "bandwidth")
        yield Table.of(columns, rows, ("sent by a rank", "bandwidth"))
