"""The tensors' peak of one step and the instant it was reached, from the allocator events of torch's profiler.

Every request and release is an event with its size, inside the operators that were running. An instant is named so
that a prediction can name it too: `forward: aten.mm` and `recompute: aten.mm` by the operator that autograd saw (the
innermost one with gradients enabled); `backward: MmBackward` by the node without its number, or `backward: gradient
sum` where the engine adds up two gradients; `update: AdamW` inside the optimizer, otherwise `update: aten.sqrt`. A
recomputation shows as operators with gradients enabled inside the backward engine, and the update as everything after
the last node of backward.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch._C._profiler import _EventType
from torch.profiler import ProfilerActivity, profile

_NODE = "autograd::engine::evaluate_function: "
_OPTIMIZER = "Optimizer.step#"
_OPERATOR = "aten::"


@dataclass(frozen=True)
class TensorPeak:
    """Requests to torch's allocator during one step."""

    above_start_bytes: int
    """Most that was requested and not yet released."""
    instant: str
    allocations: int


def tensor_peak(one_step: Callable[[], None], device_type: str) -> TensorPeak:
    """Run one step under the profiler; events of one kind of device, `cpu` or `cuda`. Raises without a profiler."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        one_step()
    if profiler.profiler is None or profiler.profiler.kineto_results is None:
        raise RuntimeError("this build of torch has no profiler, so the peak of tensors cannot be read")
    events = list(_all_events(profiler.profiler.kineto_results.experimental_event_tree()))
    changes = [event for event in events if _is_allocation(event, device_type)]
    nodes_end = max((event.end_time_ns for event in events if event.name.startswith(_NODE)), default=None)
    live = peak = 0
    highest: Any = None
    for event in sorted(changes, key=lambda one: one.start_time_ns):
        live += event.extra_fields.alloc_size
        if live > peak:
            peak, highest = live, event
    requests = sum(event.extra_fields.alloc_size > 0 for event in changes)
    return TensorPeak(peak, "none" if highest is None else _instant(highest, nodes_end), requests)


def _all_events(tree: list[Any]) -> Iterator[Any]:
    """Parents before children and siblings in order, so that a stable sort by time keeps equal times in order."""
    pending = list(reversed(tree))
    while pending:
        event = pending.pop()
        yield event
        pending.extend(reversed(event.children))


def _is_allocation(event: Any, device_type: str) -> bool:
    return bool(event.tag == _EventType.Allocation and event.extra_fields.device.type == device_type)


def _instant(event: Any, nodes_end: int | None) -> str:
    frames = list(_frames_around(event))
    for depth, frame in enumerate(frames):
        if frame.name.startswith(_OPTIMIZER):
            return f"update: {frame.name.removeprefix(_OPTIMIZER).partition('.')[0]}"
        if frame.name.startswith(_NODE):
            return _in_node(frame.name.removeprefix(_NODE), frames[:depth])
    after = nodes_end is not None and event.start_time_ns >= nodes_end
    return f"{'update' if after else 'forward'}: {_operator(frames)}"


def _in_node(node: str, frames: list[Any]) -> str:
    """Inside the evaluation of one backward node, `frames` from the innermost out."""
    if any(map(_with_gradients, frames)):
        return f"recompute: {_operator(frames)}"
    if not any(frame.name == node for frame in frames) and any(frame.name == "aten::add" for frame in frames):
        return "backward: gradient sum"
    return f"backward: {node.rpartition('::')[2].rstrip('0123456789')}"


def _operator(frames: list[Any]) -> str:
    """What autograd saw; without gradients, the outermost operator."""
    seen = next(filter(_with_gradients, frames), None)
    operators = [frame for frame in frames if frame.name.startswith(_OPERATOR)]
    chosen = seen or (operators[-1] if operators else None)
    return "outside of an operator" if chosen is None else str(chosen.name).replace("::", ".")


def _with_gradients(frame: Any) -> bool:
    """Operators called with gradients enabled carry autograd's running number."""
    return bool(frame.name.startswith(_OPERATOR) and frame.extra_fields.sequence_number >= 0)


def _frames_around(event: Any) -> Iterator[Any]:
    while (event := event.parent) is not None:
        yield event
