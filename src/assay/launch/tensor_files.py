"""The safetensors files of a checkpoint without torch: names and shapes, and whether tensors are equal or finite."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

from assay.errors import UsageError

_CHUNK_BYTES = 2**24
_EXPONENTS = {
    "F16": ("<u2", 0x7C00),
    "BF16": ("<u2", 0x7F80),
    "F32": ("<u4", 0x7F800000),
    "F64": ("<u8", 0x7FF0000000000000),
}
"""Integer and mask of the exponent by dtype; a number whose exponent has all bits set is NaN or infinite."""


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of a file."""

    path: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    """Position of its first byte in the file."""
    nbytes: int

    @property
    def is_zero(self) -> bool:
        """True if all its numbers are zero, of either sign; floats keep the sign in the highest bit."""
        import numpy as np

        width = self.nbytes // max(1, prod(self.shape))
        with self.path.open("rb") as stream:
            stream.seek(self.start)
            raw = np.frombuffer(stream.read(self.nbytes), np.uint8).reshape(-1, max(1, width))
        return not (raw[:, :-1].any() or (raw[:, -1] & 0x7F).any())

    def non_finite(self) -> int:
        """Return how many of its numbers are NaN or infinite; 0 for integers and for floats of 8 bits."""
        import numpy as np

        if self.dtype not in _EXPONENTS:
            return 0
        bits, exponent = _EXPONENTS[self.dtype]
        count = 0
        with self.path.open("rb") as stream:
            stream.seek(self.start)
            for done in range(0, self.nbytes, _CHUNK_BYTES):
                raw = np.frombuffer(stream.read(min(_CHUNK_BYTES, self.nbytes - done)), bits)
                count += int(np.count_nonzero((raw & raw.dtype.type(exponent)) == exponent))
        return count

    def equals(self, other: "StoredTensor") -> bool:
        """Return whether both have the same bits; tensors of two dtypes or shapes have not."""
        if (self.dtype, self.shape) != (other.dtype, other.shape):
            return False
        with self.path.open("rb") as ours, other.path.open("rb") as theirs:
            ours.seek(self.start)
            theirs.seek(other.start)
            for done in range(0, self.nbytes, _CHUNK_BYTES):
                size = min(_CHUNK_BYTES, self.nbytes - done)
                if ours.read(size) != theirs.read(size):
                    return False
        return True


def tensors_in(files: Iterable[Path]) -> dict[str, StoredTensor]:
    """Return the tensors of safetensors files by name. Raises `UsageError` if a file is missing or damaged."""
    from safetensors import SafetensorError, safe_open

    found: dict[str, StoredTensor] = {}
    for path in files:
        try:
            with safe_open(path, framework="numpy"):  # checks the whole header
                found |= _header(path)
        except (SafetensorError, OSError) as error:
            raise UsageError(f"{path} is not a readable safetensors file ({error}); write it again") from error
    return found


def _header(path: Path) -> dict[str, StoredTensor]:
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        entries = json.loads(stream.read(length))
    entries.pop("__metadata__", None)
    return {
        name: StoredTensor(path, one["dtype"], tuple(one["shape"]), 8 + length + first, last - first)
        for name, one in entries.items()
        for first, last in (one["data_offsets"],)
    }


def non_finite_in(tensors: Mapping[str, StoredTensor]) -> str:
    """Return the end of a sentence on the first tensor with NaN or infinite numbers; empty if all are finite."""
    for name, one in tensors.items():
        if count := one.non_finite():
            return f"{name} is NaN or infinite in {count:,} of {prod(one.shape):,} numbers"
    return ""
