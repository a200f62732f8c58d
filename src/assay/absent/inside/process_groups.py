"""Process groups whose other ranks are absent: this process is one rank, and the others answer at once, with nothing.

A script calls `init_process_group` as under torchrun. NCCL and gloo are replaced by torch's fake group, and all
collectives pass through torch's dispatcher. There each is noted, and nothing is sent. A work that a script waits for is
complete. A broadcast or a gather brings what this rank has itself. Contents that other collectives bring to the device
are not known, and read as 0. On the host a sum is this rank's own, and all else is 0. An object that only another rank
has ends in a sentence.

Collectives of one rank are listed in order: their kind, their payload, and the ranks of their group. The payload is the
larger side of a call: an all-gather's output, a reduce-scatter's input, the tensor of an all-reduce or a send. The list
is kept for one whole step, because a step repeats the one before it.
"""

import os
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from .loaded_library import Library

MOST_KEPT = 20_000
"""Most calls of one step that are kept."""
_PLAIN = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "allgather_into_tensor": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "alltoall": "all_to_all",
    "recv_any_source": "recv",
}
"""Usual name by torch's operator, without its suffixes, where the two differ."""


def plain_name(operator: str) -> str:
    """Return the usual name of an operator of `c10d`: ``all_reduce`` for ``allreduce_``."""
    name = operator.strip("_").removesuffix("coalesced").strip("_").removesuffix("base").strip("_")
    return _PLAIN.get(name, name)


class CollectiveCalls:
    """Calls since the last step, and those of the last whole step."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # autograd's threads call collectives, too
        self._now: list[tuple[str, int, tuple[int, ...]]] = []
        self._step: list[tuple[str, int, tuple[int, ...]]] | None = None
        self._steps = 0
        self._alike = True
        self.calls = 0
        """Calls of the whole process."""

    def add(self, name: str, size: int, ranks: tuple[int, ...]) -> None:
        """Note one call with its payload in bytes."""
        with self._lock:
            self.calls += 1
            if len(self._now) < MOST_KEPT:
                self._now.append((name, size, ranks))

    def stepped(self) -> None:
        """A step has ended. The first two are not compared: DistributedDataParallel makes new buckets in the second."""
        with self._lock:
            self._steps += 1
            self._alike = self._alike and (self._steps <= 3 or self._now == self._step)
            self._step, self._now = self._now, []

    def content(self) -> dict[str, Any]:
        """Return the calls of the last whole step, or without one those of the process, as plain data."""
        with self._lock:
            kept = self._now if self._step is None else self._step
            listed = [{"name": name, "bytes": size, "ranks": list(ranks)} for name, size, ranks in kept]
            return {"calls": self.calls, "of_a_step": listed, "alike": self._alike}


RANKS = "ASSAY_ABSENT_RANKS"
"""Variable that is set where other ranks are absent."""
_SENTENCE = (
    "{name} waits for an object of rank {source}, which is absent; state what it would bring "
    "(a PipelineStage takes input_args and output_args)"
)


def follow_ranks(collectives: CollectiveCalls, library: Library) -> None:
    """Replace process groups and collectives of torch, which has been imported."""
    if RANKS not in os.environ:
        return
    import torch.distributed as dist

    if dist.is_available():
        _replace_groups()
        _replace_objects()
        _replace_collectives(collectives, library)


def _replace_groups() -> None:
    """Let NCCL and gloo make fake groups, whose store needs no other process."""
    from torch._C import _distributed_c10d
    from torch.distributed import distributed_c10d as c10d

    fake: Any = _distributed_c10d.FakeProcessGroup
    fake._set_sequence_number_for_group = lambda group: None

    class Made(type):
        """Class of the stand-ins, which accept torch's fake group as an instance."""

        def __instancecheck__(cls, one: object) -> bool:
            return isinstance(one, fake)

        def __call__(cls, store: Any, rank: int, size: int, *options: Any, **named: Any) -> Any:
            return fake._create_internal(rank, size, fake.Options())

    for name in ("ProcessGroupNCCL", "ProcessGroupGloo"):
        real = getattr(c10d, name)
        setattr(c10d, name, Made(name, (), {"Options": getattr(real, "Options", None)}))

    def rendezvous(url: str, rank: int = -1, world_size: int = -1, **named: Any) -> Iterator[tuple[Any, int, int]]:
        rank = int(os.environ["RANK"]) if rank < 0 else rank
        world_size = int(os.environ["WORLD_SIZE"]) if world_size < 0 else world_size
        yield _distributed_c10d.HashStore(), rank, world_size

    c10d.rendezvous = rendezvous  # type: ignore[attr-defined]


def _replace_objects() -> None:
    """Gather this rank's own objects, and refuse those that only another rank has."""
    import torch.distributed as dist
    from torch.distributed import distributed_c10d as c10d

    def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
        object_list[:] = [obj] * len(object_list)

    def gather_object(obj: Any, object_gather_list: list[Any] | None = None, *given: Any, **named: Any) -> None:
        if object_gather_list is not None:
            object_gather_list[:] = [obj] * len(object_gather_list)

    replaced: dict[str, Callable[..., Any]] = {
        "all_gather_object": all_gather_object,
        "gather_object": gather_object,
        "broadcast_object_list": _refused(c10d.broadcast_object_list),
        "scatter_object_list": _refused(c10d.scatter_object_list, source_at=2),
        "recv_object_list": _refused(c10d.recv_object_list),
    }
    for name, function in replaced.items():
        setattr(c10d, name, function)
        setattr(dist, name, function)


def _refused(function: Callable[..., Any], source_at: int = 1) -> Callable[..., Any]:
    """The function, which raises where the object comes from another rank."""

    def answered(*given: Any, **named: Any) -> Any:
        import torch.distributed as dist

        source = given[source_at] if len(given) > source_at else named.get("src")
        if "group_src" in named and named["group_src"] is not None:
            source = dist.get_global_rank(named["group"], named["group_src"])
        if source == dist.get_rank():
            return function(*given, **named)
        raise RuntimeError(_SENTENCE.format(name=function.__name__, source="any" if source is None else source))

    return answered


def _replace_collectives(collectives: CollectiveCalls, library: Library) -> None:
    """Answer every operator of `c10d` that takes a process group, for tensors of the device and of the host."""
    import torch

    kernels = torch.library.Library("c10d", "IMPL")  # type: ignore[no-untyped-call]
    for schema in torch._C._jit_get_all_schemas():
        space, _, name = schema.name.partition("::")
        if space != "c10d" or not any("ProcessGroup" in str(one.type) for one in schema.arguments):
            continue
        for key, write in (("CUDA", _forgotten(library)), ("CPU", _written)):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch warns of each kernel that is replaced
                answer = _answer(name, schema, collectives, write)
                kernels.impl(name, answer, key, allow_override=True)  # type: ignore[no-untyped-call]
    _kept.append(kernels)


_MOST_OWN = 2**20
"""Most bytes of a gathered tensor whose contents are followed; larger ones are weights."""
_kept: list[Any] = []
"""Registrations, which end with their object."""
_KEEP = ("broadcast", "send", "barrier", "monitored_barrier")
"""Collectives after which a tensor is as it was: a broadcast is taken to bring what this rank has itself."""
Write = Callable[[str, list[Any], list[Any]], None]


def _answer(name: str, schema: Any, collectives: CollectiveCalls, write: Write) -> Callable[..., Any]:
    """Kernel of one operator: it notes the call, and returns the tensors that it was given and a finished work."""
    from torch._C._distributed_c10d import ProcessGroup
    from torch.distributed import get_process_group_ranks

    at = next(index for index, one in enumerate(schema.arguments) if "ProcessGroup" in str(one.type))
    returns = [str(one.type) for one in schema.returns]
    plain = plain_name(name)

    def answer(*given: Any) -> Any:
        group = ProcessGroup.unbox(given[at])
        tensors = [list(_tensors(one)) for one in given[:at]]
        if "barrier" not in name:
            size = max(sum(one.nbytes for one in side) for side in tensors)
            collectives.add(plain, size, tuple(get_process_group_ranks(group)))
        if plain not in _KEEP:
            write(plain, tensors[0], tensors[-1])
        results = [_finished(given[0]) if "Work" in one else given[0] for one in returns]
        return results[0] if len(results) == 1 else tuple(results) if results else None

    return answer


def _finished(result: Any) -> Any:
    """A work that is complete. Reducers of torch take the tensors from its future."""
    from torch._C import _distributed_c10d
    from torch.futures import Future

    future: Any = Future()
    future.set_result(result)
    made: Any = _distributed_c10d
    return made._create_work_from_future(future).boxed()


def _tensors(one: Any) -> Iterator[Any]:
    if isinstance(one, (list, tuple)):
        for each in one:
            yield from _tensors(each)
    else:
        yield one


def _forgotten(library: Library) -> Write:
    """Tell the library of C about tensors of the device: a gather has this rank's own contents, all else is unknown."""

    def forget(name: str, outputs: list[Any], inputs: list[Any]) -> None:
        own = inputs[0] if name == "all_gather" and len(inputs) == 1 else outputs[0]
        follows = name == "all_gather" and len(inputs) == 1 and 0 < own.nbytes <= _MOST_OWN
        for one in outputs:
            library.forget(one.data_ptr(), one.nbytes)
            for at in range(0, one.nbytes, own.nbytes) if follows else ():
                library.send(one.data_ptr() + at, own.data_ptr(), min(own.nbytes, one.nbytes - at))

    return forget


def _written(name: str, outputs: list[Any], inputs: list[Any]) -> None:
    """Write to tensors of the host: a gather has this rank's own values, a sum is its own, and all else is 0."""
    import torch

    with torch.no_grad():
        for one in outputs:
            own = inputs[0].reshape(-1) if name == "all_gather" and len(inputs) == 1 else None
            if own is not None and own.numel() and one.numel() % own.numel() == 0:
                one.copy_(own.repeat(one.numel() // own.numel()).view(one.shape))
            elif name not in ("all_reduce", "reduce"):
                one.zero_()
