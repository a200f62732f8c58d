"""Quantities as text: bytes (GB is 10^9, GiB is 2^30), FLOPs, seconds, counts.

Every figure in the package is a plain number in a base unit, with the unit in its name (``peak_bytes``,
``step_seconds``). Only this file converts between such numbers and text.
"""

import json
import math
import re
from typing import Any

from assay.errors import UsageError

_BINARY = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_DECIMAL = {"kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_SI = ("", "k", "M", "G", "T", "P", "E", "Z")
_COUNTS = ("", "k", "M", "B", "T", "P", "E", "Z")
"""Prefixes of parameters and tokens, as the field writes them: 70B is 70 billion."""
DAY, YEAR = 86_400, 365 * 86_400
"""Seconds."""


def parse_bytes(text: str) -> int:
    """Parse bytes such as ``"40GiB"``, ``"16 GB"`` or ``"1024"``. Raises `UsageError` for anything else."""
    if re.match(r"\s*[-−]\s*\d", text):
        raise UsageError(f"{text!r} is negative; an amount of memory is at least 0")
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    unit = (match[2] or "B") if match else ""
    scale = {**_BINARY, **_DECIMAL}.get(unit)
    if match is None or scale is None:
        raise UsageError(f"{text!r} is not an amount of memory: write a number and one of B, kB, MB, GB, KiB, MiB, GiB")
    return round(float(match[1]) * scale)


def format_bytes(count: float) -> str:
    """Format bytes as ``"1.50 GiB"``: binary units, three significant figures; negative counts keep their sign."""
    size = abs(count)
    unit = "B"
    for name, scale in _BINARY.items():
        if size >= scale:
            unit = name
    value = count / _BINARY[unit]
    return f"{value:.0f} B" if unit == "B" else f"{_three(value)} {unit}"


def format_flops(count: float) -> str:
    """Format FLOPs as ``"875 GFLOP"``, with SI prefixes and three significant figures."""
    return f"{format_count(count, space=True)}FLOP" if abs(count) >= 1000 else f"{count:.0f} FLOP"


def format_power(count: float) -> str:
    """Format a large count with two significant figures as a file writes it, such as ``"3.2e11"``."""
    return f"{count:.2g}".replace("e+", "e")


def parse_count(text: str) -> float:
    """Read a count such as ``"300B"``, ``"1.5T"``, ``"2e9"`` or ``"512k"``. Raises `ValueError` if it is none."""
    powers = {"k": 3, "m": 6, "b": 9, "g": 9, "t": 12}
    plain = text.strip().replace("_", "")
    if "," in plain:  # a comma between groups of three digits; elsewhere it may be meant as a decimal point
        if not re.fullmatch(r"\d{1,3}(,\d{3})+(\.\d*)?[A-Za-z]?", plain):
            raise ValueError(f"{text!r} has a comma that does not stand before three digits")
        plain = plain.replace(",", "")
    power = powers.get(plain[-1:].lower(), 0)
    value = float(plain[:-1] if power else plain)
    return value * 10.0**power


def format_count(count: float, *, space: bool = False) -> str:
    """Format a count as ``"70.0B"``, with three significant figures; with a space before an SI prefix, ``"70.0 G"``."""
    power = min(int(math.log10(abs(count)) // 3), len(_SI) - 1) if abs(count) >= 1 else 0
    value = count / 1000**power
    if abs(value) >= 999.5 and power < len(_SI) - 1:
        value, power = value / 1000, power + 1
    number = _three(value) if power else f"{value:.0f}" if value == int(value) else _three(value)
    return f"{number}{f' {_SI[power]}' if space else _COUNTS[power]}"


def format_steps(count: int) -> str:
    """Format a count of steps as ``"1 step"`` or ``"12 steps"``."""
    return "1 step" if count == 1 else f"{count} steps"


def with_margin(seconds: float, margin: float) -> str:
    """Format seconds and half of their relative interval as ``"35.2 ms ± 8 %"``."""
    return f"{format_seconds(seconds)} ± {margin:.0%}".replace("%", " %")


def with_factor(seconds: float, factor: float | None) -> str:
    """Format seconds and how many times as long or as short they may be as ``"35.2 ms ×÷ 2.2"``."""
    return format_seconds(seconds) if factor is None else f"{format_seconds(seconds)} ×÷ {factor:.1f}"


def format_seconds(seconds: float) -> str:
    """Format seconds as ``"35.2 ms"``, ``"1.20 s"``, ``"3 min 05 s"``, ``"2 h 10 min"``, ``"8.5 days"`` or years."""
    if seconds < 1e-3:
        return f"{_three(seconds * 1e6)} µs"
    if seconds < 1:
        return f"{_three(seconds * 1e3)} ms"
    if seconds < 60:
        return f"{_three(seconds)} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 7 * DAY:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{seconds / DAY:.1f} days" if seconds < 2 * YEAR else f"{format_count(seconds / YEAR)} years"


def parse_seconds(text: str) -> float:
    """Read a time such as ``"2h"``, ``"1h30m"``, ``"25 min"`` or ``"90s"``. Raises `ValueError` if it is none."""
    plain = text.strip().lower().replace(" ", "")
    found = re.fullmatch(r"(?:([\d.]+)h)?(?:([\d.]+)m(?:in)?)?(?:([\d.]+)s)?", plain)
    if found is None or not plain:
        raise ValueError(f"{text!r} is no time")
    hours, minutes, seconds = (float(one or 0) for one in found.groups())
    return 3600 * hours + 60 * minutes + seconds


def format_percent(fraction: float) -> str:
    """Format ``-0.123`` as ``"−12.3 %"``, with a sign and a true minus; zero has no sign."""
    if abs(fraction) < 5e-4:
        return "0.0 %"
    return f"{'+' if fraction > 0 else '−'}{abs(fraction) * 100:.1f} %"


def _three(value: float) -> str:
    """Format a number with three significant figures and without an exponent."""
    if value == 0:
        return "0"
    rounded = float(f"{value:.3g}")  # rounded first: 0.9999 becomes 1.00, with one decimal fewer
    digits = max(0, 2 - math.floor(math.log10(abs(rounded))))
    return f"{rounded:.{digits}f}"


def json_text(value: Any, **options: Any) -> str:
    """Return a value as JSON, with the options of `json.dumps`. What JSON cannot write becomes null."""
    try:
        return json.dumps(value, allow_nan=False, **options)
    except ValueError:
        return json.dumps(finite(value), allow_nan=False, **options)


def finite(value: Any) -> Any:
    """Return nested values with None in place of numbers that JSON cannot write."""
    if isinstance(value, dict):
        return {name: finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
