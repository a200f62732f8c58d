"""The peak of a device, of which the model FLOPs utilization (MFU) is a share.

A GPU's peak is the 16-bit one of its datasheet, as in PaLM (arXiv:2204.02311, appendix B), whatever dtype a run uses. A
datasheet belongs to one form of a device: an H100 on a PCIe card has another peak than one on an SXM board. So the
driver's name may have no word that is not listed here, and the peak of any other device is unknown. No datasheet has
the rate of a CPU with its clock under load, so a CPU's peak is the highest rate that `assay machine` measured.
"""

import re

from assay.hardware.devices import DEVICES, Device
from assay.hardware.machine import Machine

_HARMLESS = frozenset({"nvidia", "tesla", "geforce", "sxm", "sxm2", "sxm3", "sxm4", "sxm5", "hbm2", "hbm2e", "hbm3"})
"""Words of a driver's name that do not change the peak."""
_MEMORY = re.compile(r"\d+gb")


def peak_flops(machine: Machine, device: str) -> float | None:
    """Return the FLOP/s at the peak of one device, `cpu` or `cuda`; None if it is unknown."""
    if device == "cuda":
        sheet = datasheet(machine.accelerators[0].name) if machine.accelerators else None
        return None if sheet is None else sheet.half_flops
    rates = machine.rates.get(device)
    known = (
        {} if rates is None else {name: one for name, one in rates.matmul_flops.items() if name not in rates.doubtful}
    )
    return max(known.values(), default=None)


def datasheet(name: str) -> Device | None:
    """Return the device that a driver calls `name`, such as ``NVIDIA H100 80GB HBM3``; None if no datasheet fits.

    A datasheet's own name, such as ``H100 80 GB``, is understood as well.
    """
    words = [word for word in re.split(r"[^a-z0-9]+", name.lower().replace(" gb", "gb")) if word]
    kind = "".join(word for word in words if word not in _HARMLESS and not _MEMORY.fullmatch(word))
    sized = next((f"{kind}-{word}" for word in words if _MEMORY.fullmatch(word)), "")
    return DEVICES.get(sized) or DEVICES.get(kind)
