"""The tensors' peak of one step and its instant, from the allocator events of torch's profiler.

Every allocation and free is an event with its size, inside the operators that were running. An instant has the name
that a prediction gives it. `forward: aten.mm` and `recompute: aten.mm` name the operator that autograd saw, the
innermost one with gradients enabled. `backward: MmBackward` names the node without its number; `backward: gradient sum`
is the engine's sum of two gradients. `update: AdamW` is inside the optimizer, `update: aten.sqrt` outside of it.
Recomputation shows as operators with gradients enabled inside the backward engine, or as the forward of a function in
Python. The update is everything after the last node of backward.

A library may take scratch from the same allocator, as oneDNN does for bfloat16 products on processors with AVX-512. Its
size depends on the processor and the number of threads, so it is counted apart from the tensors. It is recognized by
where it is allocated. A product's result outlives the product, and torch copies an argument inside another operator
(`aten::clone`). So memory that a product allocates and frees directly is the library's.

Fused attention on a CPU and the backward of a layer norm work in buffers of each thread. They request these through
another operator and free them themselves. The buffers depend on the number of threads, so they are scratch, too.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch._C._profiler import _EventType
from torch.autograd.profiler import profile

_NODE = "autograd::engine::evaluate_function: "
_OPTIMIZER = "Optimizer.step#"
_OPERATOR = "aten::"
_ALLOCATION = "[memory]"
_PRODUCTS = frozenset(
    _OPERATOR + name for name in ("mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "linear", "_addmm_activation")
)
_FUSED = _OPERATOR + "_scaled_dot_product_flash_attention_for_cpu"
_BUFFERED = {
    _FUSED: _OPERATOR + "empty",
    f"{_FUSED}_backward": _OPERATOR + "empty",
    _OPERATOR + "native_layer_norm_backward": _OPERATOR + "resize_",
}
"""Operators with buffers of each thread, and the operator through which each requests them."""


@dataclass(frozen=True)
class TensorPeak:
    """Allocations from torch's allocator during one step."""

    above_start_bytes: int
    """Peak of the bytes that tensors allocated in the step and have not yet freed."""
    instant: str
    allocations: int
    """Number of allocations by tensors."""
    library_scratch_bytes: int
    """Peak of the scratch of libraries."""
    with_scratch_bytes: int
    """Peak of tensors and library scratch together."""


class _Change(NamedTuple):
    """One allocation or free."""

    event: Any
    start_ns: int
    nbytes: int
    """Size in bytes, negative for a free."""
    scratch: bool
    """True for a library's scratch."""


def event_tree(work: Callable[[], None], *, profile_memory: bool = False) -> Sequence[Any]:
    """Call `work` under torch's profiler, and return its events on the CPU as a tree.

    To read the tree takes a tenth of the time in which torch makes its list of events. Raises `RuntimeError` if this
    build of torch has no profiler.
    """
    with profile(use_kineto=True, profile_memory=profile_memory) as profiler:
        work()
    if profiler.kineto_results is None:
        raise RuntimeError("this build of torch has no profiler, so neither calls nor the peak of tensors can be read")
    tree: Sequence[Any] = profiler.kineto_results.experimental_event_tree()
    return tree


def tensor_peak(one_step: Callable[[], None], device_type: str) -> TensorPeak:
    """Run one step under the profiler, and read the events of one type of device, `cpu` or `cuda`.

    Raises `RuntimeError` if this build of torch has no profiler.
    """
    read = Changes(event_tree(one_step, profile_memory=True), device_type)
    changes = sorted(read.found, key=lambda one: one.start_ns)  # stable: at one instant they keep their order
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
        instant="none" if highest is None else _instant(highest, read.nodes_end),
        allocations=sum(change.nbytes > 0 and not change.scratch for change in changes),
        library_scratch_bytes=most_scratch,
        with_scratch_bytes=together,
    )


class Changes:
    """Every allocation and free on one type of device; those of an operator with scratch follow its event.

    The tree is walked once, and each attribute is read once: every read makes a Python object.
    """

    def __init__(self, tree: Sequence[Any], device_type: str) -> None:
        self.found: list[_Change] = []
        self.nodes_end: int | None = None
        """End of the last node of backward, in nanoseconds; None without one."""
        self._device_type = device_type
        self._tree = tree  # an event knows its parent only as long as the roots live
        self._visit(tree)

    def _visit(self, events: Sequence[Any], *, own: bool = False, request: str | None = None) -> None:
        """Read events in order, parents before children.

        `own` is true for those directly in an operator with scratch, which are read already. `request` is the operator
        through which the one around them requests buffers.
        """
        for event in events:
            name = event.name
            if name == _ALLOCATION:
                if not own and self._is_allocation(event):
                    self._note(event, scratch=False)
                continue
            if name.startswith(_NODE):
                self.nodes_end = max(self.nodes_end or 0, event.end_time_ns)
            children = event.children
            scratch = _takes_scratch(name)
            if scratch:
                self._note_own(children, _BUFFERED.get(name))
            self._visit(children, own=scratch or name == request, request=_BUFFERED.get(name))

    def _note_own(self, children: Sequence[Any], request: str | None) -> None:
        """Note what happens directly in an operator with scratch, its requests of buffers among them."""
        parts = (child.children if child.name == request else (child,) for child in children)
        own = [one for part in parts for one in part if one.name == _ALLOCATION and self._is_allocation(one)]
        scratch = _released_inside(own)
        for index, event in enumerate(own):
            self._note(event, scratch=index in scratch)

    def _note(self, event: Any, *, scratch: bool) -> None:
        self.found.append(_Change(event, event.start_time_ns, int(event.extra_fields.alloc_size), scratch))

    def _is_allocation(self, event: Any) -> bool:
        """True for an event of the device; a mark of the user's may have the same name."""
        return bool(event.tag == _EventType.Allocation and event.extra_fields.device.type == self._device_type)


def _takes_scratch(name: str) -> bool:
    return name in _BUFFERED or name.removesuffix("_") in _PRODUCTS


def _released_inside(changes: list[Any]) -> set[int]:
    """Indices of the allocations that are freed in the same list, and of their frees."""
    requested: dict[int, int] = {}
    inside: set[int] = set()
    for index, change in enumerate(changes):
        fields = change.extra_fields
        if fields.alloc_size > 0:
            requested[fields.ptr] = index
        elif fields.ptr in requested:
            inside |= {requested.pop(fields.ptr), index}
    return inside


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
    """Name an instant inside the evaluation of one backward node; `frames` start with the innermost."""
    if any(map(_with_gradients, frames)) or any(_is_function(frame) and frame.name != node for frame in frames):
        return f"recompute: {_operator(frames)}"
    if not any(frame.name == node for frame in frames) and any(frame.name == "aten::add" for frame in frames):
        return "backward: gradient sum"
    return f"backward: {node.rpartition('::')[2].rstrip('0123456789')}"


def _operator(frames: list[Any]) -> str:
    """Name of the operator that autograd saw; without gradients, of the outermost operator."""
    seen = next(filter(_with_gradients, frames), None)
    operators = [frame for frame in frames if frame.name.startswith(_OPERATOR)]
    chosen = seen or (operators[-1] if operators else None)
    return "outside of an operator" if chosen is None else str(chosen.name).replace("::", ".")


def _with_gradients(frame: Any) -> bool:
    """True for an operator called with gradients enabled: it has autograd's sequence number."""
    return bool(frame.name.startswith(_OPERATOR) and frame.extra_fields.sequence_number >= 0)


def _is_function(frame: Any) -> bool:
    """True for a node, or for the forward of a function in Python, whose operators autograd does not see."""
    return bool(
        frame.name.isidentifier() and frame.tag == _EventType.TorchOp and frame.extra_fields.sequence_number >= 0
    )


def _frames_around(event: Any) -> Iterator[Any]:
    while (event := event.parent) is not None:
        yield event
