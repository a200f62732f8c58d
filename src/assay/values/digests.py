"""Digest of rows of token ids and targets, from the bytes of their tensors, without an operator of torch.

An operator would be in the trace of the step, and a copy of torch's in its peak of memory. A digest depends on the rows
and their order, and not on how they are cut into batches.
"""

import ctypes
import hashlib

from torch import Tensor

_TOKEN_BYTES = 8


class RowDigest:
    """Digest of the rows that were added, and their number."""

    def __init__(self) -> None:
        self.rows = 0
        self.held = True
        """False if some rows were on another device, whose bytes are not read."""
        self.first_id = self.last_target = b""
        self._ids, self._targets = (hashlib.blake2b(digest_size=8) for _ in range(2))

    def add(self, ids: Tensor, targets: Tensor) -> None:
        """Add rows `[rows, T]` of a batch."""
        self.rows += len(ids)
        self.held = self.held and ids.device.type == targets.device.type == "cpu"
        if self.held:
            self._add(_bytes_of(ids), _bytes_of(targets))

    def add_text(self, ids: bytes, targets: bytes) -> None:
        """Add the bytes of one row, from a slow reference."""
        self.rows += 1
        self._add(ids, targets)

    def _add(self, ids: bytes, targets: bytes) -> None:
        """Add the bytes of whole rows."""
        self.first_id = self.first_id or ids[:_TOKEN_BYTES]
        self.last_target = targets[-_TOKEN_BYTES:]
        self._ids.update(ids)
        self._targets.update(targets)

    @property
    def value(self) -> tuple[bytes, bytes]:
        """Digests of the token ids and of the targets so far."""
        return self._ids.digest(), self._targets.digest()


def _bytes_of(rows: Tensor) -> bytes:
    whole = rows if rows.is_contiguous() else rows.contiguous()
    return ctypes.string_at(whole.data_ptr(), whole.numel() * whole.element_size())
