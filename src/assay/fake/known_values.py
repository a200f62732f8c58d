"""Values that the host reads from a step on fake tensors, which have none.

A number that only appears in a report changes no memory. So the line of a user's own that reads a floating number gets
an `UnreadNumber`: one can add, round and print it. Whatever decides by it, or turns it into a whole number, stops the
trace with that line. So does a read of a whole number or a bool, because a size or a branch may hang on it.

Readers that are known get a defined value. torch's loss scaler reads that no gradient overflowed, as in most steps.
This package's own steps read floating numbers and bools to report them and to skip a step that is not finite.

Small tensors have values that a trace knows. Models draw numbers and compute tables on the CPU, such as whether a layer
is left out. These are computed for real, as in training, so a decision by them is the real one. A tensor is real if it
and all that it is made from are on the CPU, and it has at most `MOST` elements. Weights that are made on the CPU and
moved are larger, so they take no memory.

Models also read masks and positions that they have just made on the device, as ``(positions == 0).all()``. A small fake
tensor of the device therefore has a twin on the CPU, as long as it follows from known numbers. Random numbers of the
device and memory that is not filled are not known, and neither is what an unknown tensor has been written into.
"""

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from assay.errors import UsageError

_OURS = str(Path(__file__).parents[1]) + os.sep
_TORCHS = str(Path(torch.__file__).parent) + os.sep
_STANDARD = str(Path(os.__file__).parent) + os.sep
_WATCHING = tuple(f"{_OURS}{room}{os.sep}" for room in ("fake", "instruments"))
_KNOWN = {
    f"{_TORCHS}amp{os.sep}grad_scaler.py": 0.0,
    f"{_TORCHS}optim{os.sep}": 1.0,
    f"{_TORCHS}utils{os.sep}data{os.sep}": 1,
}
"""Values that files and folders of torch read. A loss scaler counts overflows, an optimizer reads its step, a loader of
data its seed."""


_FINITE = {"isnan": False, "isinf": False, "isfinite": True}
"""Answers to questions about numbers that nobody computed: they are finite, as in a training that goes well."""


class UnreadNumber:
    """A floating number that was read and that nobody computed."""

    def __init__(self, place: str) -> None:
        self._place = place

    def _same(self, *_: Any) -> "UnreadNumber":
        return self

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _same
    __pow__ = __rpow__ = __neg__ = __pos__ = __abs__ = __round__ = _same

    def stopped(self) -> "StoppedTrace":
        """Return the error of a trace that needs the number."""
        return stopped_trace(self._place)

    def _decides(self, *_: Any) -> NoReturn:
        raise self.stopped()

    __bool__ = __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _decides
    __int__ = __float__ = __index__ = __hash__ = __floordiv__ = __mod__ = _decides

    def __repr__(self) -> str:
        return "unread"

    def __format__(self, form: str) -> str:
        return "unread"


class TracedReads(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Gives known readers their value, and stops at all others."""

    def __torch_dispatch__(
        self, func: OpOverload, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default and isinstance(args[0], FakeTensor):
            twin = known_twin(args[0])
            return _answer(args[0].dtype) if twin is None else _value(twin)
        return func(*args, **(kwargs or {}))


class Reported(TorchFunctionMode):
    """Gives lines of a user's own an `UnreadNumber` where they read a floating number as ``loss.item()``."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if (name := getattr(func, "__name__", "")) in _FINITE and args and known_twin(args[0]) is None:
            return _as_if_finite(name, func(*args, **(kwargs or {})))
        if func is torch.Tensor.__setitem__ and isinstance(args[-1], UnreadNumber):
            raise args[-1].stopped()
        if func is torch.Tensor.item and args[0].is_floating_point() and known_twin(args[0]) is None:
            frame = _reader()
            if frame is not None and not _is_known(frame.f_code.co_filename):
                return UnreadNumber(_place(frame, "item"))
        return func(*args, **(kwargs or {}))


def _as_if_finite(name: str, found: torch.Tensor) -> torch.Tensor:
    """Return a question about numbers with its answer, if it is small."""
    if found.numel() <= MOST:
        with unset_fake_temporarily():
            set_twin(found, torch.full(found.shape, _FINITE[name]))
    return found


def known_twin(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the tensor of the CPU with the values of a tensor: itself if it is real, None if they are not known."""
    if not isinstance(tensor, FakeTensor):
        return tensor if tensor.device.type == "cpu" else None
    twin: torch.Tensor | None = getattr(tensor, "_assay_twin", None)
    if twin is None or twin.untyped_storage()._cdata in _SPOILT:
        return None
    return twin


def set_twin(tensor: torch.Tensor, twin: torch.Tensor) -> None:
    """Keep the values of a fake tensor."""
    if isinstance(tensor, FakeTensor):
        tensor.__dict__["_assay_twin"] = twin


def deep_copy(tensor: FakeTensor, memo: dict[int, Any]) -> Any:
    """Return a copy of a fake tensor and of its known values, which are real; torch's own copy refuses those."""
    known = {name: one for name in ("constant", "_assay_twin") if (one := tensor.__dict__.get(name)) is not None}
    tensor.__dict__.update(dict.fromkeys(known))
    memo[id(tensor.fake_mode)] = tensor.fake_mode
    try:
        copied = Tensor.__deepcopy__(tensor, memo)  # type: ignore[no-untyped-call]
    finally:
        tensor.__dict__.update(known)
    with unset_fake_temporarily():
        copied.__dict__.update({name: one.clone() for name, one in known.items()})
    return copied


def spoil(tensors: Iterable[torch.Tensor]) -> None:
    """Forget the values of tensors, and of all that share their memory, because one of them takes an unknown value."""
    for twin in (getattr(one, "_assay_twin", None) for one in tensors):
        if twin is not None:
            _SPOILT[twin.untyped_storage()._cdata] = twin  # which is kept, so that no other has its address


_SPOILT: dict[int, torch.Tensor] = {}


def _value(twin: torch.Tensor) -> Any:
    with unset_fake_temporarily():
        return twin.item()


class StoppedTrace(UsageError):
    """A trace that ended at a line, because it hangs on a value."""

    def __init__(self, place: str, message: str) -> None:
        super().__init__(message)
        self.place = place


def stopped_trace(place: str) -> StoppedTrace:
    """Return the error of a trace that a read has stopped."""
    return StoppedTrace(
        place,
        f"{place}; a trace computes no values, so what hangs on it cannot be told: "
        "leave the read out, or run the step on an absent GPU (--absent)",
    )


def _is_known(file: str) -> bool:
    return file.startswith((_OURS, *_KNOWN))


def _answer(dtype: torch.dtype) -> float | int | bool:
    """Return the value for whoever reads now. Raises `UsageError` if its reader is not known."""
    frame = _reader()
    file = "" if frame is None else frame.f_code.co_filename
    for known, value in _KNOWN.items():
        if file.startswith(known):
            return value
    if file.startswith(_OURS) and dtype is torch.bool:
        return True
    if file.startswith(_OURS) and dtype.is_floating_point:
        return 1.0
    raise stopped_trace("a thread of autograd reads a value" if frame is None else _place(frame, _by(frame)))


def _reader() -> FrameType | None:
    """Return the innermost frame that is no machinery of torch, of the standard library or of this room."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_machinery(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def _is_machinery(file: str) -> bool:
    if file.startswith(tuple(_KNOWN)):
        return False
    if "site-packages" in file and not file.startswith(_TORCHS):
        return False
    return file.startswith((_TORCHS, _STANDARD, *_WATCHING, "<"))


def _by(frame: FrameType) -> str:
    """Return the name of the method that the line calls, if its text shows one, or what a value becomes."""
    import linecache

    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    return next(
        (one for one in ("item", "tolist", "all", "any", "max", "min", "int", "float") if f"{one}(" in line), "bool"
    )


def place_now() -> str:
    """Return the line that asks torch for something now, as text."""
    frame = _reader()
    return "a thread of autograd" if frame is None else _line(frame)


def asking_line(folder: Path) -> str:
    """Return file and line that ask torch for something now, the file as it is below `folder`; empty for an engine."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (
        frame.f_code.co_filename.startswith(_TORCHS) or _is_machinery(frame.f_code.co_filename)
    ):
        frame = frame.f_back
    if frame is None:
        return ""
    file = Path(frame.f_code.co_filename)
    inside = file.is_relative_to(folder) and "site-packages" not in file.parts
    name = file.relative_to(folder) if inside else Path(*file.parts[-2:])
    return f"{name.as_posix()}:{frame.f_lineno}"


def place_of(error: BaseException) -> str:
    """Return the innermost line outside of torch and this room that an error comes from, as text."""
    step, found = error.__traceback__, None
    while step is not None:
        if not _is_machinery(step.tb_frame.f_code.co_filename):
            found = step
        step = step.tb_next
    return "the step" if found is None else f"{_name(found.tb_frame.f_code.co_filename)}:{found.tb_lineno}"


def is_engine() -> bool:
    """True if no line of Python asks for the operator that runs now, because autograd's engine itself does."""
    return _reader() is None


def _place(frame: FrameType, by: str) -> str:
    return f'{_line(frame)} reads a value ("{by}")'


def _line(frame: FrameType) -> str:
    """Return a line as text, with the line of the user's own that led to it where the first is in a package."""
    file, outer = frame.f_code.co_filename, frame.f_back
    while outer is not None and (
        "site-packages" in outer.f_code.co_filename or _is_machinery(outer.f_code.co_filename)
    ):
        outer = outer.f_back
    led = "site-packages" in file and outer is not None
    caller = f" (from {_name(outer.f_code.co_filename)}:{outer.f_lineno})" if led and outer else ""
    return f"{_name(file)}:{frame.f_lineno}{caller}"


def _name(file: str) -> str:
    """Return a file as text: its path within an installed package, or its name."""
    inside = file.rpartition(f"site-packages{os.sep}")[2]
    return inside if inside != file else Path(file).name


MOST = 2**16
"""Most elements of a tensor that keeps its values."""
_UNFILLED = ("aten.empty", "aten.new_empty")
"""Beginnings of the names of operators that do not fill what they make."""
_CPU = torch.device("cpu")


class HostTensors(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Computes operators on small host tensors for real, and keeps twins. It is entered inside of the fake mode."""

    def __torch_dispatch__(
        self, func: OpOverload, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        given = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
        if any(isinstance(one, FakeTensor) for one in given):
            if func._schema.is_mutable:
                _check_target(func, args)
            return _with_twin(func, args, kwargs, given)
        if any(one.is_meta for one in given):
            return func(*args, **kwargs)
        if torch.device(kwargs.get("device") or "cpu") != _CPU:
            return _with_twin(func, args, kwargs, given)
        if not given:
            made = func(*args, **kwargs)
            if not all(one.device == _CPU and one.numel() <= MOST for one in tree_leaves(made) if _is(one)):
                return made
        with unset_fake_temporarily():
            return func(*args, **kwargs)


class HostStep(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps twins in a step of the CPU, whose tensors are all fake. Whole numbers are drawn, as those of rows."""

    def __torch_dispatch__(
        self, func: OpOverload, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        given = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
        return (
            func(*args, **kwargs)
            if any(one.is_meta for one in given)
            else _with_twin(func, args, kwargs, given, drawn=True)
        )


def _with_twin(
    func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], given: list[Tensor], drawn: bool = False
) -> Any:
    """Return the fake result; its twin is computed from those of the arguments, if all of them are known.

    Random numbers are not known, except whole ones if they are `drawn`.
    """
    twins = [known_twin(one) for one in given]
    made = func(*args, **kwargs)
    results = [one for one in tree_leaves(made) if _is(one)]
    random = torch.Tag.nondeterministic_seeded in func.tags
    whole = drawn and not any(one.is_floating_point() for one in results)
    unfilled = str(func).startswith(_UNFILLED) or (random and not whole)
    small = all(one.numel() <= MOST for one in (*given, *results))
    if unfilled or not small or not results or any(one is None for one in twins):
        if func._schema.is_mutable:
            spoil(given)
        return made
    on_cpu = tree_map_only(Tensor, known_twin, (args, kwargs))
    if "device" in on_cpu[1]:
        on_cpu[1]["device"] = _CPU
    with unset_fake_temporarily():
        twin = func(*on_cpu[0], **on_cpu[1])
    for one, other in zip(results, (one for one in tree_leaves(twin) if _is(one)), strict=True):
        set_twin(one, other)
    return made


def _is(one: Any) -> bool:
    return isinstance(one, Tensor)


def _check_target(func: OpOverload, args: tuple[Any, ...]) -> None:
    """Raise `UsageError` if a real tensor is to take values that nobody computes."""
    for argument, one in zip(func._schema.arguments, args, strict=False):
        written = argument.alias_info is not None and argument.alias_info.is_write
        if written and _is(one) and not isinstance(one, FakeTensor) and one.numel():
            raise UsageError(
                f"{place_now()} writes values of the device into a tensor of the host ({func}), which a trace cannot "
                "follow; run the step on an absent GPU (--absent)"
            )
