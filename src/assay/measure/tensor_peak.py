"""The tensors' peak of one step and the instant it was reached, from the allocator events of torch's profiler.

Every request and release is an event with its size, inside the operators that were running. An instant is named so
that a prediction can name it too: `forward: aten.mm` and `recompute: aten.mm` by the operator that autograd saw (the
innermost one with gradients enabled); `backward: MmBackward` by the node without its number, or `backward: gradient
sum` where the engine adds up two gradients; `update: AdamW` inside the optimizer, otherwise `update: aten.sqrt`. A
recomputation shows as operators with gradients enabled inside the backward engine, and the update as everything after
the last node of backward.

A library may take scratch from the same allocator: oneDNN does for products in bfloat16 where the processor has
AVX-512. How much depends on the processor and the number of threads, so it is counted apart from the tensors. It is
known by where it is requested. A product's result outlives the product, and torch makes a copy of an argument inside an
operator of its own (`aten::clone`). So what a product requests and releases by itself is the library's.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch._C._profiler import _EventType
from torch.profiler import ProfilerActivity, profile

_NODE = "autograd::engine::evaluate_function: "
_OPTIMIZER = "Optimizer.step#"
_OPERATOR = "aten::"
_PRODUCTS = frozenset(
    _OPERATOR + name for name in ("mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "linear", "_addmm_activation")
)


@dataclass(frozen=True)
class TensorPeak:
    """Requests to torch's allocator during one step."""

    above_start_bytes: int
    """Most that tensors requested and had not yet released."""
    instant: str
    allocations: int
    """By tensors."""
    library_scratch_bytes: int
    """Most that libraries had requested for themselves at once."""
    with_scratch_bytes: int
    """Most that tensors and libraries together had requested and not yet released."""


class _Change(NamedTuple):
    """A request or a release."""

    event: Any
    scratch: bool
    """Whether a library requested it for itself."""

    @property
    def nbytes(self) -> int:
        """Negative for a release."""
        return int(self.event.extra_fields.alloc_size)


def tensor_peak(one_step: Callable[[], None], device_type: str) -> TensorPeak:
    """Run one step under the profiler; events of one kind of device, `cpu` or `cuda`. Raises without a profiler."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        one_step()
    if profiler.profiler is None or profiler.profiler.kineto_results is None:
        raise RuntimeError("this build of torch has no profiler, so the peak of tensors cannot be read")
    tree = profiler.profiler.kineto_results.experimental_event_tree()
    nodes_end = max((event.end_time_ns for event in _all_events(tree) if event.name.startswith(_NODE)), default=None)
    changes = sorted(_changes(tree, device_type), key=lambda one: one.event.start_time_ns)
    tensors = scratch = peak = most_scratch = together = 0
    highest: Any = None
    for change in changes:
        if change.scratch:
            scratch += change.nbytes
        else:
            tensors += change.nbytes
        if tensors > peak:
            peak, highest = tensors, change.event
        most_scratch, together = max(most_scratch, scratch), max(together, tensors + scratch)
    return TensorPeak(
        above_start_bytes=peak,
        instant="none" if highest is None else _instant(highest, nodes_end),
        allocations=sum(change.nbytes > 0 and not change.scratch for change in changes),
        library_scratch_bytes=most_scratch,
        with_scratch_bytes=together,
    )


def _all_events(tree: list[Any]) -> Iterator[Any]:
    """Parents before children and siblings in order, so that a stable sort by time keeps equal times in order."""
    pending = list(reversed(tree))
    while pending:
        event = pending.pop()
        yield event
        pending.extend(reversed(event.children))


def _changes(tree: list[Any], device_type: str) -> Iterator[_Change]:
    """Every request and release on one kind of device, those of a product behind the product."""
    for event in _all_events(tree):
        if event.name.removesuffix("_") in _PRODUCTS:
            own = [child for child in event.children if _is_allocation(child, device_type)]
            scratch = _released_inside(own)
            yield from (_Change(child, index in scratch) for index, child in enumerate(own))
        elif _is_allocation(event, device_type) and not _is_in_product(event):
            yield _Change(event, scratch=False)


def _is_in_product(event: Any) -> bool:
    return event.parent is not None and event.parent.name.removesuffix("_") in _PRODUCTS


def _released_inside(changes: list[Any]) -> set[int]:
    """Positions of the requests that are released in the same list, and of their releases."""
    requested: dict[int, int] = {}
    inside: set[int] = set()
    for index, change in enumerate(changes):
        if change.extra_fields.alloc_size > 0:
            requested[change.extra_fields.ptr] = index
        elif change.extra_fields.ptr in requested:
            inside |= {requested.pop(change.extra_fields.ptr), index}
    return inside


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
