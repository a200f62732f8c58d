"""Tensors during a value check: one file that grows, or memory of the GPU, and an index of their contents.

Tensors are written one at a time, so a process never holds a second copy of its weights. The files are scratch: the
checking process maps them, and then they are deleted. A tensor that is read is a view of the mapped file, because
copies of hundreds of small tensors take as long as a step.
"""

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from assay.training.checkpoints.stored import BITS
from assay.values.shared_memory import OpenedMemory, SharedMemory

CPU = torch.device("cpu")
_ALIGNMENT = 64
"""Multiple of bytes at which a tensor begins, as torch's own do."""


def record_of(folder: Path, rank: int = 0) -> Path:
    """Return the file of a rank's record in a folder."""
    return folder / f"rank{rank}.bin"


class Key(NamedTuple):
    """Identity of a stored tensor."""

    kind: str
    """`gradient`, `weight`, `probe` (each also with ` padding` appended), `state`, `buffer`, `ids`, `targets` or
    `noise`."""
    step: int
    name: str


class TensorWriter:
    """Appends tensors to `path`; `close` writes the index to a `.json` file. Raises `OSError` if the disk fails.

    Tensors of a GPU go to `memory` while it has room. Without `digests` none of a tensor's bits is kept: only records
    of several ranks are compared by them.
    """

    def __init__(self, path: Path, memory: SharedMemory | None = None, *, digests: bool = True) -> None:
        self._path, self._memory, self._digests = path, memory, digests
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("wb")
        self._index: list[dict[str, Any]] = []

    def add(self, key: Key, tensor: Tensor, *, stored: bool = True) -> None:
        """Append one tensor; with `stored=False` only its digest, for a replica that another rank stores."""
        entry: dict[str, Any] = {
            "key": list(key),
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "shape": list(tensor.shape),
        }
        self._index.append(entry)
        if self._memory is not None and tensor.is_cuda and tensor.numel() and stored and not self._digests:
            entry["memory"] = self._memory.put(tensor)
        if entry.get("memory") is None:
            bits = _bits(tensor)
            if stored:
                self._file.write(bytes(-self._file.tell() % _ALIGNMENT))
            entry["offset"] = self._file.tell() if stored else None
            entry["digest"] = hashlib.blake2b(bits, digest_size=16).hexdigest() if self._digests else None
            if stored:
                self._file.write(bits)

    def close(self, **about: Any) -> None:
        """Write the index, with plain values `about` the tensors."""
        self._file.close()
        index = self._path.with_suffix(".json")
        memory = self._memory.described() if self._memory is not None else []
        index.write_text(json.dumps({"tensors": self._index, "memory": memory, **about}))


class TensorReader:
    """Reads what a `TensorWriter` wrote; `about` has the plain values. Memory of a GPU is opened on `device`."""

    def __init__(self, path: Path, device: torch.device = CPU) -> None:
        self.about: dict[str, Any] = json.loads(path.with_suffix(".json").read_text())
        memory = self.about.pop("memory")
        self._memory = OpenedMemory(memory, device) if memory else None
        self._entries = {Key(*one["key"]): one for one in self.about.pop("tensors")}
        self._keys: dict[tuple[str, int], list[Key]] = {}
        for key in self._entries:
            self._keys.setdefault((key.kind, key.step), []).append(key)
        # What a reader changes in place stays in its memory.
        mapped = np.memmap(path, np.uint8, "c") if path.stat().st_size else np.empty(0, np.uint8)
        self._bits = torch.from_numpy(mapped)
        self._views: dict[Key, Tensor] = {}
        self._wholes: dict[torch.dtype, Tensor] = {}

    def keys(self, kind: str, step: int) -> list[str]:
        """Names of the tensors of one kind in one step, in the order of writing."""
        return [key.name for key in self._keys.get((kind, step), [])]

    def stored_keys(self, kind: str, step: int) -> list[Key]:
        """Return the keys of the tensors of one kind in one step that this file has."""
        return [key for key in self._keys.get((kind, step), []) if self.stored(key)]

    def stored(self, key: Key) -> bool:
        """True if this file has the tensor itself, not only its digest."""
        entry = self._entries.get(key, {})
        return entry.get("memory") is not None or entry.get("offset") is not None

    def digest(self, key: Key) -> str:
        """Hash of the tensor's bits."""
        return str(self._entries[key]["digest"])

    def get(self, key: Key) -> Tensor:
        """Return the tensor where it lies: in the GPU's memory, or in the mapped file. It must not be changed."""
        if (view := self._views.get(key)) is not None:
            return view
        entry = self._entries[key]
        dtype: torch.dtype = getattr(torch, entry["dtype"])
        if (place := entry.get("memory")) is not None:
            assert self._memory is not None
            return self._memory.get(place[0], place[1], dtype, entry["shape"])
        shape: list[int] = entry["shape"]
        if 0 in shape:
            view = torch.empty(shape, dtype=dtype)
        else:  # one operator: several of them, for each tensor, take as long as a small model's step
            view = self._as(dtype).as_strided(shape, _strides(shape), entry["offset"] // dtype.itemsize)
        return self._views.setdefault(key, view)

    def _as(self, dtype: torch.dtype) -> Tensor:
        """Return the whole file as numbers of one dtype."""
        if (whole := self._wholes.get(dtype)) is None:
            whole = self._wholes[dtype] = self._bits[: len(self._bits) // dtype.itemsize * dtype.itemsize].view(dtype)
        return whole

    def close(self) -> None:
        """Let go of the GPU's memory. Tensors that lie there must not be used any more."""
        if self._memory is not None:
            self._memory.close()


def moved_to_files(path: Path, memory: SharedMemory) -> None:
    """Write what lies in `memory` beside the record at `path`, whose index then names the files. Raises `OSError`."""
    index = path.with_suffix(".json")
    about = json.loads(index.read_text())
    index.write_text(json.dumps({**about, "memory": memory.written(path.parent)}))


def _strides(shape: list[int]) -> list[int]:
    """Return the strides of a contiguous tensor."""
    strides = [1]
    for length in reversed(shape[1:]):
        strides.insert(0, strides[0] * length)
    return strides[: len(shape)]


def _bits(tensor: Tensor) -> memoryview:
    # A copy: storage that NumPy has seen cannot be resized, and then counts as memory that torch did not allocate.
    whole = (tensor.detach().cpu() if tensor.is_cuda else tensor.detach().clone()).contiguous()
    vector = whole if whole.ndim else whole[None]
    # NumPy has no bfloat16, so tensors are written as their bits.
    return vector.view(BITS[whole.element_size()]).numpy().reshape(-1).view(np.uint8).data
