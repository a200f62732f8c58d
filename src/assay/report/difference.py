"""Two runs side by side: the keys in which their configurations and environments differ, and their figures.

Figures are listed for the reader to judge. Two single runs have no interval, so no change is called real here; `assay
compare` is for that.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from assay.report.blocks import UNKNOWN, amount, figure
from assay.report.run import flat
from assay.units import format_percent, format_seconds

if TYPE_CHECKING:
    from assay.records.run import RunResult

Pair = tuple[Any, Any]


def configurations(a: "RunResult", b: "RunResult") -> dict[str, Pair]:
    """Return the keys in which two configurations differ, with optimizations as they are written."""
    return _unlike(flat(a.config.model_dump(mode="json")), flat(b.config.model_dump(mode="json")))


def environments(a: "RunResult", b: "RunResult") -> dict[str, Pair]:
    """Return the fields in which two environments differ; a run that was killed may have recorded none."""
    ours, theirs = ({} if one.environment is None else flat(one.environment.model_dump(mode="json")) for one in (a, b))
    return _unlike(ours, theirs)


def figures(a: "RunResult", b: "RunResult") -> dict[str, Pair]:
    """Return every figure that at least one of the runs has."""
    found = {name: (getattr(a, name), getattr(b, name)) for name in ("steps", "tokens", "train_loss", "val_loss")}
    found["tokens_per_second"] = (a.tokens_per_second, b.tokens_per_second)
    found["step_seconds"] = (_median(a), _median(b))
    for name in ("tensors_peak_bytes", "reserved_peak_bytes", "process_peak_bytes", "heap_peak_bytes", "allocations"):
        found[name] = (getattr(a.memory, name), getattr(b.memory, name))
    return {name: pair for name, pair in found.items() if pair != (None, None)}


def changed(pairs: Mapping[str, Pair]) -> Iterator[tuple[str, str, str, str]]:
    """Yield rows of name, first value, second value, and the second's change against the first."""
    for name, (first, second) in pairs.items():
        known = first is not None and second is not None and first != 0
        yield name, _shown(name, first), _shown(name, second), format_percent(second / first - 1) if known else UNKNOWN


def _median(result: "RunResult") -> float | None:
    return None if result.step_seconds is None else result.step_seconds.median


def _shown(name: str, value: Any) -> str:
    if name.endswith("_bytes"):
        return amount(value)
    if name == "step_seconds" and value is not None:
        return format_seconds(value)
    return str(value) if isinstance(value, int) else figure(value)


def _unlike(ours: Mapping[str, str], theirs: Mapping[str, str]) -> dict[str, Pair]:
    keys = dict.fromkeys([*ours, *theirs])
    pairs = {key: (ours.get(key, UNKNOWN), theirs.get(key, UNKNOWN)) for key in keys}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}
