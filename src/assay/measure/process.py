"""What this process holds, as the kernel accounts for it, and a high-water mark that can be reset.

`getrusage` is no help: a child's `ru_maxrss` contains its parent's. `/proc/self/status` has the process's own mark
(`VmHWM`), and its anonymous and file pages apart: a memory-mapped token file that was read is in `RssFile`, and not
memory that the run asked for. Off Linux all of it is None.
"""

from dataclasses import dataclass
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"


@dataclass(frozen=True)
class ProcessMemory:
    """Resident memory in bytes."""

    peak_bytes: int
    """Highest since the last reset, file pages included."""
    anonymous_bytes: int
    file_bytes: int


def reset_peak() -> bool:
    """Let the high-water mark start again from what is resident now; False where the kernel cannot."""
    try:
        _CLEAR.write_text(_RESET_PEAK)
    except OSError:
        return False
    return True


def read() -> ProcessMemory:
    """What is resident now, and the mark; zeros where the kernel does not say."""
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return ProcessMemory(0, 0, 0)
    fields = {name: value for name, _, value in (line.partition(":") for line in lines)}

    def nbytes(name: str) -> int:
        return int(fields[name].split()[0]) * 1024 if name in fields else 0

    return ProcessMemory(nbytes("VmHWM"), nbytes("RssAnon"), nbytes("RssFile"))
