"""Memory of a GPU that one process fills and another one opens: where a run's record of its own values lies.

A record of three steps has some forty bytes for each parameter. On its way through a file it is copied to the host,
written, read and copied back, which takes longer than the run's own steps. A copy on the device takes milliseconds.

The driver gives the memory, not torch's allocator, whose figures belong to the run. Another process opens it by a
handle (CUDA driver API, *Interprocess communication*). Where the driver has no handles, as under WSL, there is no such
memory. Where another process may not open them, as in some containers, it is written to files instead. Functions of the
driver return 0 if they succeed.
"""

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

_CHUNK = 256 * 2**20
"""Bytes that are asked of the driver at once, or a tensor's if it has more."""
_ALIGNED = 512
"""Tensors begin at multiples of this many bytes, so that any dtype may be seen in their place."""
_PEER_ACCESS = 1
"""CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, the only flag that there is."""


class _Handle(ctypes.Structure):
    """CUipcMemHandle of cuda.h."""

    _fields_ = [("reserved", ctypes.c_ubyte * 64)]


class _Bytes:
    """Some memory of a device, as torch takes it from other libraries (the CUDA array interface, version 3)."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__: dict[str, Any] = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }


class SharedMemory:
    """Memory of `device` that fills up, until the driver gives no more."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._chunks: list[tuple[int, Tensor]] = []
        self._handles: list[str] = []
        self._used = 0

    def put(self, tensor: Tensor) -> tuple[int, int] | None:
        """Copy a tensor, and return its chunk and its first byte there; None if the driver refuses memory."""
        octets = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
        first = -(-self._used // _ALIGNED) * _ALIGNED
        if not self._chunks or first + len(octets) > len(self._chunks[-1][1]):
            if not self._grow(max(_CHUNK, len(octets))):
                return None
            first = 0
        self._chunks[-1][1][first : first + len(octets)].copy_(octets)
        self._used = first + len(octets)
        return len(self._chunks) - 1, first

    def _grow(self, size: int) -> bool:
        address, handle = ctypes.c_uint64(), _Handle()
        try:
            driver = _driver()
        except OSError:  # AMD's
            return False
        torch.cuda.current_stream(self.device).synchronize()  # the driver's context is torch's
        if driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)):
            return False
        if driver.cuIpcGetMemHandle(ctypes.byref(handle), address):
            driver.cuMemFree_v2(address)
            return False
        self._chunks.append((address.value, torch.as_tensor(_Bytes(address.value, size), device=self.device)))
        self._handles.append(bytes(handle).hex())
        return True

    def described(self) -> list[tuple[str, int]]:
        """Handle and bytes of each chunk, once all copies are done."""
        torch.cuda.synchronize(self.device)
        return [(handle, len(octets)) for handle, (_, octets) in zip(self._handles, self._chunks, strict=True)]

    def written(self, folder: Path) -> list[tuple[str, int]]:
        """Write each chunk to a file, and return the path and the bytes of each. Raises `OSError`."""
        found = []
        for number, (_, octets) in enumerate(self._chunks):
            path = folder / f"chunk{number}.bin"
            octets.cpu().numpy().tofile(path)
            found.append((str(path), len(octets)))
        return found

    def free(self) -> None:
        """Return the memory to the driver. Whoever opened it has closed it, or has ended."""
        chunks, self._chunks, self._handles, self._used = self._chunks, [], [], 0
        for address, _ in chunks:
            _driver().cuMemFree_v2(ctypes.c_uint64(address))


class NotShared(OSError):
    """The driver does not open another process's memory here."""


class OpenedMemory:
    """Another process's `SharedMemory` by its description, or by its files. Raises `NotShared`."""

    def __init__(self, described: Sequence[tuple[str, int]], device: torch.device) -> None:
        self._addresses: list[int] = []
        self._chunks = [
            torch.from_numpy(np.memmap(text, np.uint8, "c")) if "/" in text else self._opened(text, size, device)
            for text, size in described
        ]

    def _opened(self, text: str, size: int, device: torch.device) -> Tensor:
        torch.cuda.synchronize(device)  # starts CUDA in this process
        address, handle = ctypes.c_uint64(), _Handle.from_buffer_copy(bytes.fromhex(text))
        if failed := _driver().cuIpcOpenMemHandle_v2(ctypes.byref(address), handle, _PEER_ACCESS):
            raise NotShared(f"the driver does not open the record in the GPU's memory (error {failed})")
        self._addresses.append(address.value)
        return torch.as_tensor(_Bytes(address.value, size), device=device)

    def get(self, chunk: int, first: int, dtype: torch.dtype, shape: Sequence[int]) -> Tensor:
        """Return a tensor that lies there. It must not be used once the memory is closed."""
        size = dtype.itemsize
        for one in shape:
            size *= one
        return self._chunks[chunk][first : first + size].view(dtype).reshape(tuple(shape))

    def close(self) -> None:
        """Let go of the memory."""
        addresses, self._addresses, self._chunks = self._addresses, [], []
        for address in addresses:
            _driver().cuIpcCloseMemHandle(ctypes.c_uint64(address))


def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")
