"""The peak of a device, of which the model FLOPs utilization (MFU) is a share.

The peak is that of the dtypes in which a step multiplies. A GPU's peaks are those of its datasheet, as in PaLM
(arXiv:2204.02311, appendix B). A datasheet belongs to one form of a device: an H100 on a PCIe card has another peak
than one on an SXM board. So the driver's name may have no word that is not listed here, and the peak of any other
device is unknown. No datasheet has the rate of a CPU with its clock under load, so a CPU's peaks are the rates that
`assay machine` measured.
"""

import re
from collections.abc import Mapping

from assay.hardware.devices import DEVICES, Device
from assay.hardware.machine import Machine

_HARMLESS = frozenset({"nvidia", "tesla", "geforce", "sxm", "sxm2", "sxm3", "sxm4", "sxm5", "hbm2", "hbm2e", "hbm3"})
"""Words of a driver's name that do not change the peak."""
_MEMORY = re.compile(r"\d+gb")


def peak_flops(machine: Machine, device: str, flops: Mapping[str, int]) -> float | None:
    """Return the FLOP/s of one device, `cpu` or `cuda`, that does all products at the peak of their dtypes.

    `flops` has the FLOPs of a step by dtype. The result is their sum over the sum of their shortest times. It is None
    if the peak of one of them is unknown.
    """
    peaks = _peaks(machine, device)
    if not flops or not set(flops) <= set(peaks):
        return None
    return sum(flops.values()) / sum(one / peaks[dtype] for dtype, one in flops.items())


def _peaks(machine: Machine, device: str) -> Mapping[str, float]:
    """Return the known peaks of a device in FLOP/s by dtype."""
    if device == "cuda":
        sheet = datasheet(machine.accelerators[0].name) if machine.accelerators else None
        return {} if sheet is None else sheet.flops
    rates = machine.rates.get(device)
    if rates is None:
        return {}
    return {dtype: one for dtype, one in rates.matmul_flops.items() if dtype not in rates.doubtful}


def datasheet(name: str) -> Device | None:
    """Return the device that a driver calls `name`, such as ``NVIDIA H100 80GB HBM3``; None if no datasheet fits.

    A datasheet's own name, such as ``H100 80 GB``, is understood as well.
    """
    words = [word for word in re.split(r"[^a-z0-9]+", name.lower().replace(" gb", "gb")) if word]
    kind = "".join(word for word in words if word not in _HARMLESS and not _MEMORY.fullmatch(word))
    sized = next((f"{kind}-{word}" for word in words if _MEMORY.fullmatch(word)), "")
    return DEVICES.get(sized) or DEVICES.get(kind)
