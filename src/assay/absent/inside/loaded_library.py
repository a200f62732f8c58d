"""The library of C in this process: its counts, and its calls of the observer."""

import ctypes
from collections.abc import Callable
from typing import Any

COUNTS = (
    *("launches", "products", "fills", "copies_on_device", "synchronizations", "reads", "read_bytes"),
    *("copies_to_device", "pageable_copies", "copies_to_pinned", "pinned_bytes", "graph_launches", "graph_nodes"),
    "not_kept",
)
"""Counts in the order of `absent.h`."""

_READ = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int)
_UNKNOWN = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int)


class Library:
    """The library, which the process was started with. Raises `AttributeError` if it was not."""

    def __init__(self) -> None:
        loaded = ctypes.CDLL(None)
        self._counts = loaded.absent_counts
        self._observe = loaded.absent_observe
        self._known = loaded.absent_known
        self._overwritten = loaded.absent_overwritten
        self._sent = loaded.absent_sent
        self._set_code = loaded.absent_set_code
        self._most_used = loaded.absent_most_used
        self._most_used.restype = ctypes.c_uint64
        self._array = (ctypes.c_uint64 * len(COUNTS))()
        self._callbacks: tuple[Any, ...] = ()

    def counts(self) -> dict[str, int]:
        """Return the counts of the process so far."""
        self._counts(self._array, len(COUNTS))
        return dict(zip(COUNTS, self._array, strict=True))

    def most_used(self, device: int) -> int:
        """Return the most bytes that a device has given out at once."""
        return int(self._most_used(device))

    def set_known(self, address: int, value: int, size: int) -> None:
        """Say that all bytes of a block of the device have this value."""
        self._known(ctypes.c_void_p(address), ctypes.c_int(value), ctypes.c_size_t(size))

    def forget(self, address: int, size: int) -> None:
        """Say that nobody knows the contents of a block of the device."""
        self._overwritten(ctypes.c_void_p(address), ctypes.c_size_t(size))

    def send(self, address: int, source: int, size: int) -> None:
        """Say that a block of the device has what another one has, as far as that is known."""
        self._sent(ctypes.c_void_p(address), ctypes.c_void_p(source), ctypes.c_size_t(size))

    def set_architecture(self, number: int) -> None:
        """Say for which architecture the kernels are compiled, such as 86."""
        self._set_code(ctypes.c_int(number))

    def observe(self, read: Callable[[str, int, int, bool], None], unknown: Callable[[str, str, bool], None]) -> None:
        """Let the library call `read(operator, address, bytes, known)` and `unknown(library, function, runs)`."""

        def on_read(operator: bytes, address: int, size: int, known: int) -> None:
            read(operator.decode(), address, size, bool(known))

        def on_unknown(library: bytes, function: bytes, runs: int) -> None:
            unknown(library.decode(), function.decode(), bool(runs))

        self._callbacks = (_READ(on_read), _UNKNOWN(on_unknown))
        self._observe(*self._callbacks)

    def let_go(self) -> None:
        """Take the functions back, because the interpreter ends, or the process is a fork."""
        self._observe(None, None)
