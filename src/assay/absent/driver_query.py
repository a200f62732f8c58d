"""`nvidia-smi` for programs on an absent GPU: it answers queries with the device's own figures."""

import sys
from pathlib import Path

from assay.absent.gpus import AbsentDevice
from assay.hardware.devices import MIB

_SCRIPT = '''#!{python} -SE
"""Stands in for nvidia-smi: the driver of an absent GPU."""
import sys

FIELDS, COUNT = {fields!r}, {count}
UNITS = {{"memory": " MiB"}}
options = dict(one.lstrip("-").split("=", 1) for one in sys.argv[1:] if "=" in one)
style = options.get("format", "").split(",")
if "query-gpu" not in options or style[0] != "csv":
    sys.exit("an absent GPU answers nvidia-smi --query-gpu=FIELD,... --format=csv only")
asked = options["query-gpu"].split(",")
unit = lambda name: "" if "nounits" in style else UNITS.get(name.split(".")[0], "")
if "noheader" not in style:
    print(", ".join(asked))
for index in range(COUNT):
    row = FIELDS | {{"index": str(index)}}
    print(", ".join(row[name] + unit(name) if name in row else "[N/A]" for name in asked))
'''


def write_driver_query(folder: Path, device: AbsentDevice, count: int) -> Path:
    """Write an executable `nvidia-smi` for some equal devices into a new folder, and return the folder.

    It knows names, memory and compute capability. Other figures of a device are "[N/A]", as the driver says of those
    that a device does not have.
    """
    fields = {
        "count": str(count),
        "name": device.name,
        "memory.total": str(device.driver_bytes // MIB),
        "compute_cap": ".".join(map(str, device.capability)),
    }
    folder.mkdir()
    tool = folder / "nvidia-smi"
    tool.write_text(_SCRIPT.format(python=sys.executable, fields=fields, count=count), encoding="utf-8")
    tool.chmod(0o755)
    return folder
