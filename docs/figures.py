"""The figures of docs/parallelism.md: each is drawn from the arithmetic that the package predicts with.

`FIGURES` has every figure by the name of its file. `docs/generate.py` writes them, and reports one that is out of date.
"""

from collections.abc import Callable
from dataclasses import replace

from schematics import context, data, expert, mesh, offload, sequence, tensor
from svg import WIDTH, Drawing

from assay.config import ModelConfig
from assay.config.mesh import Mesh
from assay.cost.closed_forms import Recompute, layer_activation_bytes, state_bytes
from assay.cost.mesh_layout import Layout
from assay.cost.pipeline_bubble import StageTime, play
from assay.cost.pipeline_schedules import Schedule, gpipe, interleaved_1f1b, one_f_one_b, zero_bubble_v
from assay.estimator.plan import plan
from assay.hardware.cluster import cluster

PARTS = {"weights": "s1", "gradients": "s3", "optimizer": "s2", "activations": "s4"}
NODE = cluster("a100", 1, 8)
WIDE = ModelConfig(n_layer=48, n_head=64, n_embd=6144, context_length=2048, vocab_size=51_200, dropout=0.1)
"""22 billion parameters: the smallest model of arXiv:2205.05198, which was trained on one node."""


def zero() -> Drawing:
    """Memory of model states by stage of ZeRO: figure 1 of arXiv:1910.02054."""
    parameters, ranks = 7.5e9, 64
    drawing = Drawing("Memory of weights, gradients and optimizer state by stage of ZeRO", 250)
    drawing.text(20, 28, "7.5 billion parameters on 64 devices: memory of each, in GB", bold=True)
    drawing.key(20, 52, {name: PARTS[name] for name in ("weights", "gradients", "optimizer")})
    names = ("data parallelism", "ZeRO 1", "ZeRO 2", "ZeRO 3 (FSDP)")
    divided = ("nothing divided", "optimizer state", "and gradients", "and weights")
    scale = (WIDTH - 330) / (16 * parameters)
    for stage, (name, what) in enumerate(zip(names, divided, strict=True)):
        y, x = 72 + 42 * stage, 240.0
        drawing.text(20, y + 14, name)
        drawing.text(20, y + 29, what, size=11, role="soft")
        parts = state_bytes(parameters, ranks, stage)
        for part, nbytes in zip(("weights", "gradients", "optimizer"), parts, strict=True):
            drawing.box(x, y, max(1.0, scale * nbytes), 28, PARTS[part])
            x += max(1.0, scale * nbytes)
        drawing.text(x + 8, y + 19, f"{sum(parts) / 1e9:.3g}")
    return drawing


def activations() -> list[tuple[str, float]]:
    """Bytes that one of 8 tensor ranks saves for a layer of GPT-3 and one sequence: table 2 of arXiv:2205.05198."""
    model = ModelConfig(n_layer=96, n_head=96, n_embd=12288, context_length=2048, vocab_size=51_200)
    cases: tuple[tuple[str, int, bool, Recompute], ...] = (
        ("one device", 1, False, "none"),
        ("tensor parallelism", 8, False, "none"),
        ("… and sequence parallelism", 8, True, "none"),
        ("… and selective recomputation", 8, True, "selective"),
        ("tensor, all recomputed", 8, False, "full"),
    )
    return [
        (name, layer_activation_bytes(model, 1, tensor=tensor, sequence_parallel=split, recompute=again))
        for name, tensor, split, again in cases
    ]


def pipeline() -> Drawing:
    """Four simulated schedules of eight micro-batches over four stages; backward takes twice as long as forward."""
    stages, count, time = 4, 8, StageTime(1, 1, 1)
    schedules: dict[str, Schedule] = {
        "gpipe": gpipe(stages, count),
        "1f1b": one_f_one_b(stages, count),
        "interleaved": interleaved_1f1b(stages, count, 2),
        "zero-bubble": zero_bubble_v(stages, count),
    }
    drawing = Drawing("Four simulated pipeline schedules", 66 + 132 * len(schedules))
    drawing.text(20, 28, "Four stages, eight micro-batches: work of each rank over time", bold=True)
    key = {"forward": "s1", "backward": "s2", "backward of the input": "s5", "of the weights": "s3"}
    drawing.key(20, 52, key, step=160)
    drawing.text(660, 52, "paler: a rank's second stage", size=12, role="soft")
    longest = max(play(one, [time] * stages).makespan_seconds for one in schedules.values())
    for place, (name, schedule) in enumerate(schedules.items()):
        _schedule(drawing, name, schedule, time, 78 + 132 * place, (WIDTH - 110) / longest)
    return drawing


def _schedule(drawing: Drawing, name: str, schedule: Schedule, time: StageTime, top: float, scale: float) -> None:
    played = play(schedule, [time] * schedule.stages)
    held = f"at most {float(max(played.held)):.3g} micro-batches alive"
    drawing.text(20, top + 12, name, bold=True)
    drawing.text(120, top + 12, f"idle {played.idle_share:.1%} of the step; {held}", size=12, role="soft")
    colours = {"F": "s1", "B": "s2", "I": "s5", "W": "s3"}
    for stage, (order, begins) in enumerate(zip(schedule.orders, played.begin_seconds, strict=True)):
        y = top + 22 + 22 * stage
        drawing.text(20, y + 14, f"rank {stage}", size=11, role="soft")
        drawing.box(70, y, scale * played.makespan_seconds, 19, "panel")
        for action, begin in zip(order, begins, strict=True):
            width = scale * time.of(action.kind) / schedule.chunks
            pale = {} if action.chunk == 0 else {"opacity": 0.6}
            label = str(action.micro_batch + 1)
            drawing.box(70 + scale * begin, y, width - 1, 19, colours[action.kind], label=label, size=10, **pale)


def techniques() -> Drawing:
    """Memory and traffic of one rank: the same model and batch on eight A100s, under one technique each."""
    shared = Layout(Mesh(dp=8), 32, 4, recompute="selective")
    layouts = {
        "data": shared,
        **{f"ZeRO {stage}": replace(shared, zero=stage) for stage in (1, 2, 3)},
        "tensor": replace(shared, mesh=Mesh(tp=8)),
        "tensor + sequence": replace(shared, mesh=Mesh(tp=8), sequence_parallel=True),
        "context": replace(shared, mesh=Mesh(cp=8)),
        "pipeline (1F1B)": replace(shared, mesh=Mesh(pp=8)),
    }
    drawing = Drawing("Memory and traffic of one rank under each technique", 108 + 34 * len(layouts))
    title = "22 billion parameters, 32 sequences of 2,048 tokens a step, on eight A100s; attention's scores recomputed"
    drawing.text(20, 28, title, bold=True)
    drawing.key(20, 52, PARTS, step=110)
    drawing.text(170, 82, "memory of the fullest rank, GB", size=12, role="soft")
    drawing.text(610, 82, "sent by a rank in a step, GB", size=12, role="soft")
    plans = {name: plan(WIDE, one, NODE.network, NODE.datasheet.products_flops) for name, one in layouts.items()}
    most = max(one.memory_bytes for one in plans.values())
    loud = max(sum(one.sent_bytes.values()) for one in plans.values())
    device = 170 + 360 * NODE.datasheet.accelerator.memory_bytes / most
    for place, (name, one) in enumerate(plans.items()):
        y, x = 94 + 34 * place, 170.0
        drawing.text(20, y + 16, name)
        fullest = max(one.held, key=lambda stage: stage.nbytes)
        for part, colour in PARTS.items():
            width = 360 * getattr(fullest, part) / most
            drawing.box(x, y, width, 22, colour)
            x += width
        drawing.text(max(x, device if x > device - 30 else x) + 6, y + 16, f"{fullest.nbytes / 1e9:.0f}", size=12)
        sent = sum(one.sent_bytes.values())
        drawing.box(610, y, max(1.0, 190 * sent / loud), 22, "s0")
        drawing.text(616 + max(1.0, 190 * sent / loud), y + 16, f"{sent / 1e9:.3g}", size=12)
    drawing.line(device, 88, device, 96 + 34 * len(plans), "ink", dashed=True)
    drawing.text(device + 5, 104 + 34 * len(plans) - 2, "an A100 has 80", size=11, role="soft")
    return drawing


FIGURES: dict[str, Callable[[], Drawing]] = {
    "techniques": techniques,
    "data": data,
    "zero": zero,
    "tensor": tensor,
    "sequence": lambda: sequence(activations()),
    "context": context,
    "pipeline": pipeline,
    "expert": expert,
    "offload": lambda: offload(NODE.datasheet),
    "mesh": mesh,
}
