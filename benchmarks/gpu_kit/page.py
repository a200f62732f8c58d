"""The page of a kit's files: what a device was measured to do.

    python benchmarks/gpu_kit/page.py FOLDER [--out docs/measured/gpu.md]

FOLDER has the JSON files that `benchmarks/gpu_kit` wrote. Parts that are missing are named. `FOLDER/absent` may have
the peaks of an absent device of this kind. Where FOLDER has a file `facts.md`, it ends the page.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

Items = Mapping[str, Any]
_T_95 = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 7: 2.36, 9: 2.26, 19: 2.09}
"""Student's t by degrees of freedom; between two of them the lower counts."""


def page(files: Mapping[str, Mapping[str, Any]], absent: Items = MappingProxyType({})) -> str:
    """Return the page in Markdown. `files` has the content of each part's file by the part's name.

    `absent` has the items of the part `peaks` on an absent device of this kind.
    """
    sections = SECTIONS | {"peaks": lambda items: _peaks(items, absent)}
    first = next(iter(files.values()))["about"]
    versions = ", ".join(f"{name} {one}" for name, one in first["versions"].items() if one)
    lines = [
        "# One GPU, measured",
        "",
        f"{first['device']}, driver {first['driver']}; {versions}; {first['date']}.",
        "",
    ]
    for name, section in sections.items():
        lines += [f"## {name.capitalize()}", ""]
        if name in files:
            lines += [*section(files[name]["items"]), "", f"`{files[name]['about']['command']}`", ""]
        else:
            lines += [f"Not taken yet: `python benchmarks/gpu_kit {name}`.", ""]
    return "\n".join(lines).rstrip() + "\n"


def _rates(items: Items) -> Iterator[str]:
    yield "Products of square matrices of random normal numbers, in TFLOP/s: one, and twenty in a row."
    yield ""
    yield "| size and number | " + " | ".join(_products(items)) + " |"
    yield "| --- |" + " --- |" * len(_products(items))
    sizes = dict.fromkeys(size for one in _products(items).values() for size in one)
    for size in sizes:
        cells = (one.get(size, {}).get("flops") for one in _products(items).values())
        yield f"| {size} | " + " | ".join("" if one is None else f"{max(one) / 1e12:.1f}" for one in cells) + " |"
    yield ""
    yield from _copies_and_launches(items)
    yield "| operator | shape | forward, µs | with backward, µs |"
    yield "| --- | --- | ---: | ---: |"
    for name, one in items.items():
        if name.startswith(("attention", "loops")):
            shape = one.get("shape", "")
            for what, figures in one.items():
                yield from _timed_row(name, what, shape, figures)


def _copies_and_launches(items: Items) -> Iterator[str]:
    if "copies" in items:
        told = (f"{what} {one / 1e9:,.0f}" for what, one in items["copies"].items() if isinstance(one, float))
        yield f"Copies, in GB a second: {', '.join(told)}."
    if "launches" in items:
        told = (f"{what} {1e6 * one:.1f}" for what, one in items["launches"].items())
        yield f"A small operation in a chain, in µs of the host: {', '.join(told)}."
    yield ""


def _timed_row(name: str, what: str, shape: object, figures: object) -> Iterator[str]:
    """Yield the row of one kernel of attention at a shape, or of one element-wise layer."""
    if not isinstance(figures, dict):
        return
    kind, _, rest = name.partition(" ")
    title, at = (f"{kind} {rest}", what) if kind == "attention" else (f"{what} {rest}", shape)
    if "unavailable" in figures:
        yield f"| {title} | {at} | unavailable | |"
        return
    both = 1e6 * figures["forward_and_backward"]
    yield f"| {title} | {at} | {1e6 * figures['forward']:.1f} | {both:.1f} |"


def _products(items: Items) -> dict[str, Any]:
    start = "products in "
    return {name.removeprefix(start): one for name, one in items.items() if name.startswith(start)}


def _peaks(items: Items, absent: Items) -> Iterator[str]:
    """Yield the peaks of a device beside the ledger's, and beside those of an absent device of its kind."""
    taken = {name: one for name, one in items.items() if "requested_peak" in one}
    yield f"{len(taken)} of {len(items)} steps were measured."
    if not taken:
        return
    predicted = {name: absent.get(name, one)["predicted"] for name, one in taken.items()}  # the later ledger's
    off = sorted((predicted[name] - one["requested_peak"]) / one["requested_peak"] for name, one in taken.items())
    yield f"The ledger's requested peak is off by {off[0]:+.4%} to {off[-1]:+.4%}."
    if beside := [(one, absent[name]) for name, one in taken.items() if name in absent]:
        kinds = ("requested", "allocated", "reserved")
        equal = (sum(one[f"{kind}_peak"] == other[f"{kind}_peak"] for one, other in beside) for kind in kinds)
        told = ", ".join(f"{kind} in {count}" for kind, count in zip(kinds, equal, strict=True))
        yield f"On an absent device of this kind peaks of {len(beside)} steps are equal to the byte: {told}."
    yield ""
    yield "| stack | requested | by the ledger | on an absent device | reserved | on an absent device |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    for name, one in taken.items():
        other, own = absent.get(name, {}), [one["requested_peak"], one["reserved_peak"]]
        away = [
            _away(other.get(f"{kind}_peak"), found) for kind, found in zip(("requested", "reserved"), own, strict=True)
        ]
        lead = f"| {one['stack'] or 'baseline'} | {own[0]:,} | {_away(one['predicted'], own[0])}"
        yield f"{lead} | {away[0]} | {own[1]:,} | {away[1]} |"


def _away(predicted: int | None, found: int) -> str:
    if predicted is None:
        return ""
    return "equal" if predicted == found else f"{predicted - found:+,}"


def _race(items: Items) -> Iterator[str]:
    yield "Time of our step over nanoGPT's beside it, with an interval of 95 % over interleaved blocks of ten steps."
    yield ""
    yield "| ours | ours, ms | nanoGPT, ms | ratio |"
    yield "| --- | ---: | ---: | ---: |"
    for name, one in items.items():
        if "ours" not in one:
            yield f"| {name} | | | {one.get('failed', '')} |"
            continue
        ours, theirs = one["ours"], one.get("theirs")
        beside = "" if theirs is None else f"{1e3 * statistics.median(theirs):.2f}"
        ratio = "" if theirs is None else _interval([a / b for a, b in zip(ours, theirs, strict=True)])
        yield f"| {name} | {1e3 * statistics.median(ours):.2f} | {beside} | {ratio} |"


def _interval(ratios: Sequence[float]) -> str:
    free = len(ratios) - 1
    t = _T_95[max(one for one in _T_95 if one <= free)]
    half = t * statistics.stdev(ratios) / len(ratios) ** 0.5
    return f"{statistics.fmean(ratios):.3f} ± {half:.3f}"


def _honest(items: Items) -> Iterator[str]:
    refused = {name: one for name, one in items.items() if not one.get("verdict")}
    yield f"{len(items) - len(refused)} of {len(items)} honest runs were proven."
    for name, one in refused.items():
        yield f"- {name}: {one.get('failed') or '; '.join(one['failures'])}"
    yield ""
    yield "| run | largest error over its bound | loss | gradients | updates | baseline steps |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    for name, one in items.items():
        if "used" in one:
            errors = (one[key] for key in ("loss_error", "gradient_error", "update_error"))
            cells = (f"{error:.1e}" if error is not None else "" for error in errors)
            yield f"| {name} | {one['used']:.2f} | {' | '.join(cells)} | {one['baseline_steps']:.0f} |"


def _commands(items: Items) -> Iterator[str]:
    for name, one in items.items():
        yield f"{name}: exit code {one.get('returncode', one.get('failed'))}"
        yield ""
        yield "```text"
        yield str(one.get("output", "")).strip()[-3000:]
        yield "```"


SECTIONS = {
    "rates": _rates,
    "peaks": lambda items: _peaks(items, {}),
    "race": _race,
    "honest": _honest,
    "cells": _commands,
    "ladder": _commands,
    "tests": _commands,
}


def main() -> None:
    """Write the page of a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path("docs/measured/gpu.md"))
    given = parser.parse_args()
    files = {
        name: json.loads(file.read_text()) for name in SECTIONS if (file := given.folder / f"{name}.json").exists()
    }
    if not files:
        sys.exit(f"{given.folder} has no file of a part; run python benchmarks/gpu_kit --out {given.folder}")
    beside = given.folder / "absent" / "peaks.json"
    absent = json.loads(beside.read_text())["items"] if beside.exists() else {}
    facts = given.folder / "facts.md"
    known = f"\n{facts.read_text(encoding='utf-8')}" if facts.exists() else ""
    given.out.write_text(page(files, absent) + known, encoding="utf-8")


if __name__ == "__main__":
    main()
