"""Limits of a GPU's multiprocessors by compute capability (CUDA C++ Programming Guide)."""

from collections.abc import Mapping
from typing import NamedTuple

KIB = 2**10


class ProcessorLimits(NamedTuple):
    """Limits of one multiprocessor."""

    threads: int
    blocks: int
    shared_bytes: int
    shared_optin_bytes: int
    """Most shared memory of one block."""


LIMITS: Mapping[tuple[int, int], ProcessorLimits] = {
    (7, 0): ProcessorLimits(2048, 32, 96 * KIB, 96 * KIB),
    (7, 5): ProcessorLimits(1024, 16, 64 * KIB, 64 * KIB),
    (8, 0): ProcessorLimits(2048, 32, 164 * KIB, 163 * KIB),
    (8, 6): ProcessorLimits(1536, 16, 100 * KIB, 99 * KIB),
    (8, 9): ProcessorLimits(1536, 24, 100 * KIB, 99 * KIB),
    (9, 0): ProcessorLimits(2048, 32, 228 * KIB, 227 * KIB),
    (10, 0): ProcessorLimits(2048, 32, 228 * KIB, 227 * KIB),
    (12, 0): ProcessorLimits(1536, 24, 100 * KIB, 99 * KIB),
}
"""Limits by compute capability."""
