"""Operators of one step, in order, for its predicted time: what each reads and writes, and in which part of the step.

They are those of the third step, from the end of one update to the end of the next, if the user asked for times.
Compiled code and captured graphs have no operators, so nothing is kept where they run.
"""

import os
import sys
from typing import Any

RECORDED = 2
"""Steps before the one whose operators are kept."""


class StepOperators:
    """Keeps the operators of one step."""

    def __init__(self) -> None:
        self.wanted = bool(os.environ.get("ASSAY_ABSENT_TIMES"))
        self._kept: dict[tuple[Any, ...], int] = {}
        """Place of each distinct operator."""
        self._order: list[int] = []
        self._mode: Any = None
        self._updating = False
        self._whole = False

    def stepped(self, steps: int, replayed: int) -> None:
        """A step has ended, the last of so many; it replayed so many nodes of graphs."""
        self._updating = False
        if self._mode is not None:
            mode, self._mode = self._mode, None
            mode.__exit__(None, None, None)
            self._whole = not replayed and not _compiles()
        elif self.wanted and steps == RECORDED and not _compiles():
            self._mode = _mode(self)
            self._mode.__enter__()

    def updates(self) -> None:
        """An optimizer begins to step."""
        self._updating = True

    def add(self, name: str, read: Any, written: Any) -> None:
        """Note one operator, with the tensors that it reads and writes: shape, dtype and bytes of each."""
        key = (name, read, written, self._part(), _in_tf32())
        self._order.append(self._kept.setdefault(key, len(self._kept)))

    def _part(self) -> str:
        import torch

        if torch._C._current_graph_task_id() == -1:
            return "update" if self._updating else "forward"
        return "recompute" if torch.is_grad_enabled() else "backward"

    def content(self) -> dict[str, Any] | None:
        """Return distinct operators and their order; None if no whole step was kept."""
        if not self._whole:
            return None
        return {"distinct": list(self._kept), "order": self._order}


def _in_tf32() -> bool:
    """True if products of float32 may be in TF32 now."""
    import torch

    return bool(torch.backends.cuda.matmul.allow_tf32)


def _compiles() -> bool:
    """True if the script has compiled code by now, or is inside of a dispatch mode of its own."""
    torch, dynamo = sys.modules.get("torch"), sys.modules.get("torch._dynamo.utils")
    compiled = "torch._inductor.compile_fx" in sys.modules or bool(getattr(dynamo, "counters", {}).get("frames"))
    return compiled or bool(torch and torch._C._len_torch_dispatch_stack())


def _mode(operators: StepOperators) -> Any:
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    def seen(given: Any) -> list[Any]:
        return [one for one in tree_leaves(given) if isinstance(one, torch.Tensor) and one.is_cuda]

    def told(tensors: list[Any]) -> tuple[Any, ...]:
        return tuple(
            (tuple(one.shape), str(one.dtype).removeprefix("torch."), _bytes(one), one.untyped_storage().data_ptr())
            for one in tensors
        )

    class Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            read = told(seen((args, kwargs)))
            found = func(*args, **kwargs)
            changed = _changed(func, args, kwargs)
            written = told(seen(changed if changed else found))
            if (read or written) and (changed or not _views(read, written)):
                operators.add(func._schema.name.partition("::")[2], _bare(read), _bare(written))
            return found

    return Mode()  # type: ignore[no-untyped-call]


def _bytes(tensor: Any) -> int:
    """Bytes of its elements in memory; an expanded tensor has fewer than its shape says."""
    return int(min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes()))


def _changed(func: Any, args: Any, kwargs: Any) -> list[Any]:
    """Arguments that an operator writes to."""
    schema = func._schema.arguments
    given = [*zip(schema, args, strict=False), *((one, kwargs.get(one.name)) for one in schema[len(args) :])]
    return [value for one, value in given if one.alias_info is not None and one.alias_info.is_write]


def _views(read: tuple[Any, ...], written: tuple[Any, ...]) -> bool:
    """True if all results lie in the memory of arguments, so that nothing is computed."""
    known = {one[3] for one in read}
    return bool(written) and all(one[3] in known for one in written)


def _bare(tensors: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(one[:3] for one in tensors)
