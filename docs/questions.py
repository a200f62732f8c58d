"""Arithmetic for docs/estimating.md: what fits a device, when a training is converged, how fast devices get faster."""

import math
from collections.abc import Callable, Iterable, Mapping
from functools import cache

import numpy as np
from scipy.optimize import brentq

from assay.config import Run, load
from assay.config.loading import stack
from assay.estimator import estimate
from assay.estimator.cost import USUAL_MFU, FlopsCost
from assay.hardware import Machine
from assay.hardware.devices import DEVICES, Device
from assay.scaling.laws import Law

BUDGETS = ("rtx4090", "a100-40gb", "a100", "h200")
"""Devices sold with 24, 40, 80 and 141 GB."""
_LESS = "sdpa_attention+activation_checkpointing+chunked_cross_entropy+bf16_full+optimizer_in_backward"
STACKS: Mapping[str, str] = {
    "nothing": "",
    "everything, Adam's state in 8 bits": f"{_LESS}+adamw_8bit",
    "everything, Adafactor": f"{_LESS}+adafactor",
}
_ANY = Machine(processor="any", cores=16, memory_bytes=2**42)
_DEPTHS = (3, 5)

PROPERTIES: Mapping[str, Callable[[Device], float]] = {
    "products in 16 bits": lambda device: device.half_flops,
    "bandwidth of the memory": lambda device: device.bandwidth_bytes,
    "memory": lambda device: device.memory_bytes,
    "products for each watt": lambda device: device.half_flops / (device.watts or math.nan),
}
GENERATIONS = {
    "NVIDIA's for data centres": ("v100", "a100", "h100", "h200", "b200"),
    "NVIDIA's for desks": ("rtx3090", "rtx4090", "rtx5090"),
}
"""Devices of one line, a generation each; the H200 has the products of the H100 and more memory."""
YEAR = 365.25 * 86_400
HUNDRED_TRILLION = 1e14
ENDLESS = 1e60
"""Tokens after which no law's loss falls any more."""


def shape(layers: int, techniques: str, depth: int | None = None) -> Run:
    """Return a step of the family: `layers` layers of width 128 · `layers`, or another depth of the same width."""
    size = (f"model.n_layer={depth or layers}", f"model.n_embd={128 * layers}", f"model.n_head={layers}")
    step = ("training.batch_size=1", "training.gradient_clip=0", "device=cuda")
    return load("gpt2-124m", [*size, *step], stack([techniques]) if techniques else ())


def peak_bytes(run: Run) -> int:
    """Return the peak of the tensors of a step."""
    return estimate(run, _ANY).timeline.peak.nbytes


@cache
def quick_peak_bytes(layers: int, techniques: str) -> float:
    """Return a peak by the line through two shallow models of the same width, whose blocks are all alike."""
    low, high = (peak_bytes(shape(layers, techniques, depth)) for depth in _DEPTHS)
    return low + (high - low) / (_DEPTHS[1] - _DEPTHS[0]) * (layers - _DEPTHS[0])


def largest(techniques: str, budget_bytes: int) -> int:
    """Return the number of layers of the largest model of the family whose step fits."""
    layers = 16
    for _ in range(4):  # a parameter takes about as many bytes in models of a similar size
        layers = max(2, round(layers * (budget_bytes / quick_peak_bytes(layers, techniques)) ** (1 / 3)))
    while quick_peak_bytes(layers, techniques) > budget_bytes:
        layers -= 1
    while quick_peak_bytes(layers + 1, techniques) <= budget_bytes:
        layers += 1
    return layers


def doubling_years(devices: Iterable[Device], of: str) -> tuple[float, float]:
    """Return the years in which a property doubles, and the standard error of the fit."""
    points = [(device.year, math.log2(PROPERTIES[of](device))) for device in devices]
    years, logs = zip(*points, strict=True)
    (slope, _), covariance = np.polyfit(years, logs, 1, cov=True)
    return 1 / float(slope), float(np.sqrt(covariance[0, 0])) / float(slope) ** 2


def line(name: str) -> list[Device]:
    """Return the devices of one line."""
    return [DEVICES[one] for one in GENERATIONS[name]]


def training_seconds(parameters: float, tokens: float, devices: int, device: Device) -> float:
    """Return the seconds of a training at the usual share of the peak, 6 FLOPs for each parameter and token."""
    flops = 6 * parameters * tokens
    return FlopsCost(flops=flops, device=device, devices=devices, mfu=USUAL_MFU, price=None).seconds


def optimal_tokens(law: Law, parameters: float) -> float:
    """Return the tokens with which a model of this size is the best for its compute."""
    return float(10 ** brentq(lambda power: math.log(law.optimum(6 * parameters * 10**power)[0] / parameters), 3, 30))


def converged(law: Law, flops: float, within: float = 0.01) -> tuple[float, float]:
    """Return the largest N, and its D, that this compute brings within a share of the loss on endless data."""

    def above(power: float) -> float:
        size = 10**power
        return float(law.loss(size, flops / 6 / size) / law.loss(size, ENDLESS)) - 1 - within

    size = 10 ** brentq(above, 2, math.log10(law.optimum(flops)[0]))
    return size, flops / 6 / size


def flops_for(law: Law, loss: float) -> float:
    """Return the least FLOPs with which an optimum has this loss."""
    return float(10 ** brentq(lambda power: float(law.loss(*law.optimum(10**power))) - loss, 8, 40))
