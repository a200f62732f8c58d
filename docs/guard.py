"""Keep what a reader is shown, and compare it after the code has moved: a guard for changes that should show nothing.

    python docs/guard.py FILE             keep it
    python docs/guard.py --check FILE     name what differs, each with the start of its difference

It keeps the pages of all published records, the JSON of every verb that only reads, and its text on terminals of 80
and 160 columns. Pages of the dashboard, reports in a notebook and rows for trackers follow. All read one home, built
here from records of studies, runs of an older home, a study of scaling that follows a known law, and a run of four
steps. Where a machine measures, digits are masked. Paths of the home are masked everywhere. It takes about two minutes;
the file has all texts.
"""

import contextlib
import difflib
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent / "tests"))  # support has the study that nobody ran

from study_pages import ARCHIVE, PAGE, STUDIES  # noqa: E402

from assay.api.runs import import_archive  # noqa: E402
from assay.api.study import show  # noqa: E402
from assay.cli.main import app  # noqa: E402
from assay.config import Home  # noqa: E402
from assay.report.kit.view import write_page  # noqa: E402

SCALED = "20261101-101010-abcde12"
LADDER, TABLE = "lecture-ladder", "wikitext-recipe-attention"
READING = (
    "study ls",
    f"study show {LADDER}",
    f"study show {TABLE}",
    f"study show {SCALED}",
    f"study status {LADDER}",
    "study library",
    "study library cpu-fifteen",
    "study plan cpu-fifteen --scale small data.path=TEXT",
    f"study machines {TABLE} {TABLE}",
    "runs ls --limit 30",
    "runs show RUN",
    "runs diff RUN OTHER",
    "data ls",
    "estimate demo",
    "estimate demo --with bf16_mixed --with sdpa_attention",
    "estimate demo --instants --with activation_checkpointing",
    "estimate demo --nproc 2 --with fully_sharded",
    "estimate gpt2-124m --device h100",
    "inference gpt2-124m --device l4 --bits 8",
    "cost gpt2-124m --tokens 10B --device h100 --devices 8 --price 2.5",
    "plan gpt2-1558m training.batch_size=512 --nodes 4 --gpus-per-node 8 --gpu h100 --with fully_sharded",
    "accuracy",
    "capacity gpt2-124m --memory 8GB --with bf16_mixed",
    "capacity gpt2-124m --device l4",
    "mesh --world 16 --tp 2 --pp 2 --ranks-per-node 8",
    "optimizations",
    "optimizations activation_checkpointing",
    "optimizations --table",
    "absent",
    "scaling laws",
    "scaling fit POINTS --draws 20",
    "scaling predict POINTS --draws 20 --params 1M --tokens 100M",
    "scaling predict --law kaplan-size --params 1B",
    "scaling isoflop POINTS --draws 20",
    "scaling optimal --flops 1e21",
    "scaling optimal --grow 10",
    f"scaling optimal --flops 1e14 --points {SCALED}",
    f"scaling points {SCALED}",
    f"scaling report {SCALED}",
    "scaling batch --loss 3",
)
"""Verbs that read. Each is asked for JSON and for text at two widths."""
SEARCHING = ("recommend demo --device t4 --gpus 1",)
"""Verbs that read, and take long: asked for JSON and for text at one width."""
MEASURING = ("doctor", "runs show last", "gradients last --micro-batches 2", "anatomy demo")
"""Verbs that look at the machine: their figures are masked."""
WIDTHS = (80, 160)
VIEWS = (
    *("/", "/runs", "/runs/RUN", "/studies", f"/studies/{SCALED}", f"/studies/{LADDER}", f"/studies/{TABLE}"),
    *("/scaling", "/scaling/answer?flops=1e22", f"/scaling/answer?law=study:{SCALED}"),
    *("/what-if", "/what-if/answer?preset=demo"),
)
_MOST_LINES, _LONGEST = 12, 240
"""Of a difference that is printed."""


class _Stream(io.StringIO):
    """A stream that says it is a terminal, or a pipe."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


def build(home: Home) -> dict[str, str]:
    """Fill a home with records and runs of an older home; return ids of studies, and words of commands, by name."""
    from assay.studies.folder import StudyFolder
    from support.scaled import scaled_record

    named = {}
    for archive in sorted(STUDIES.glob(f"*/{ARCHIVE}")):
        new = import_archive(archive, home=home).new
        (named[archive.parent.name],) = (one.removeprefix("reports/") for one in new if one.startswith("reports/"))
    folder = StudyFolder(home.reports / SCALED)
    folder.path.mkdir(parents=True)
    folder.write_record(scaled_record().model_copy(update={"id": SCALED}))
    text, points = home.root / "text.txt", home.root / "points.csv"
    text.write_bytes(b"It reads, and it writes. " * 4000)
    points.write_bytes((STUDIES / "scaling-stdlib" / "points.csv").read_bytes())
    shutil.copytree(DOCS.parent / "tests" / "support" / "old_home" / "runs", home.runs, dirs_exist_ok=True)
    runs = sorted(path.name for path in home.runs.iterdir())
    return {**named, "RUN": runs[0], "OTHER": runs[1], "TEXT": str(text), "POINTS": str(points)}


def asked(words: Sequence[str], width: int | None = None) -> str:
    """Return what a verb prints on a terminal of so many columns (None: into a pipe), with its exit code."""
    out, notes = _Stream(width is not None), _Stream(False)
    os.environ["COLUMNS"] = str(width or WIDTHS[0])
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(notes):
        code = app(list(words), standalone_mode=False)
    return f"{out.getvalue()}\n{notes.getvalue()}exit code {code or 0}\n"


def pages(named: Mapping[str, str], home: Home) -> Iterator[tuple[str, str]]:
    """Yield the published files of each study and all its values; tables of losses by their digest."""
    for title, study in named.items():
        page = write_page(show(study, home), home)
        for name in (*PAGE, "answer.json"):
            content = (page.parent / name).read_bytes()
            binary = name.endswith(".parquet")
            yield f"page {title}/{name}", hashlib.sha256(content).hexdigest() if binary else content.decode()


def verbs(named: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield what each verb prints. The run whose figures are masked is made last, so that no list has it."""
    for line in (*READING, *SEARCHING):
        words = [_word(one, named) for one in line.split()]
        yield f"json {line}", asked((*words, "--json"))
        for width in WIDTHS[: 1 if line in SEARCHING else None]:
            yield f"text {width} {line}", asked(words, width)
    asked(("train", "demo", "training.steps=4"))
    for line in MEASURING:
        value, _ = json.JSONDecoder().raw_decode(asked((*line.split(), "--json")))
        yield f"json {line}", json.dumps(_shape(value), indent=1)
        yield f"text {line}", "" if line == "doctor" else _masked(asked(line.split(), WIDTHS[1]))


def _word(one: str, named: Mapping[str, str]) -> str:
    """Return a word of a command with the names that this home has for studies, runs and files."""
    key, equals, value = one.rpartition("=")
    return f"{key}{equals}{named.get(value, value)}"


def _shape(value: Any) -> Any:
    """Return the keys of a value with the kinds of what they have; of a list, each kind once."""
    if isinstance(value, dict):
        return {key: _shape(one) for key, one in value.items()}
    if isinstance(value, list):
        return sorted({json.dumps(_shape(one)) for one in value})
    return type(value).__name__


def _masked(text: str) -> str:
    """Return a text without ids, figures with their units, and whatever is as wide as these."""
    text = re.sub(r"\d{8}-\d{6}-[0-9a-f]{6}-[0-9a-f]{4}", "ID", text)
    return re.sub(r"[-−+]?\d[\d.,e]*(?:[-+]\d+)?(?: ?[kMGTµmn]?(?:i?B|s)|[kMGT])?\b| {2,}|─+|━+", "#", text)


def views(named: Mapping[str, str], home: Home) -> Iterator[tuple[str, str]]:
    """Yield pages of the dashboard, and reports in a notebook, with figures by their digest."""
    from support.dashboards import client

    browser = client(home)
    for view in VIEWS:
        found = browser.get("/".join(_word(one, named) for one in view.split("/")))
        yield f"view {view}", f"{found.status_code}\n{found.text}"
    for title in (SCALED, LADDER):
        html = show(_word(title, named), home)._repr_html_()
        yield f"notebook {title}", re.sub('base64,[^"]*', lambda one: hashlib.sha256(one[0].encode()).hexdigest(), html)


def everything() -> dict[str, str]:
    """Return all texts by name, with the home's path masked."""
    os.environ.pop("ASSAY_EXTENSIONS", None)
    os.environ |= {"TERM": "xterm-256color", "PYTHONPATH": str(DOCS.parent / "src")}
    root = Path(tempfile.gettempdir()).resolve() / "assay-guard"  # always as long, because tables are as wide as paths
    root.mkdir()
    try:
        home = Home(root)
        os.environ["ASSAY_HOME"] = str(root)
        named = build(home)
        studies = {title: study for title, study in named.items() if (home.reports / study).is_dir()}
        found = dict([*pages({**studies, SCALED: SCALED}, home), *views(named, home), *verbs(named)])
    finally:
        shutil.rmtree(root)
    return {name: text.replace(str(root), "HOME") for name, text in found.items()}


def difference(before: str, after: str) -> str:
    """Return the first lines of a difference, cut to a screen."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), "before", "after", lineterm="", n=0)
    shown = [line[:_LONGEST] for line, _ in zip(lines, range(_MOST_LINES), strict=False)]
    return "\n".join(shown)


def main(words: list[str]) -> int:
    """Keep all texts in the file, or compare them with it; returns the exit code."""
    if os.environ.get("PYTHONHASHSEED") != "0":  # figures of the study that nobody ran follow from hashes of names
        return subprocess.call([sys.executable, __file__, *words], env=os.environ | {"PYTHONHASHSEED": "0"})
    (path,) = (Path(word).absolute() for word in words if word != "--check")
    now = everything()
    digest = hashlib.sha256(json.dumps(now, sort_keys=True).encode()).hexdigest()[:16]
    if "--check" not in words:
        path.write_bytes(gzip.compress(json.dumps(now).encode(), 6))
        print(f"{len(now)} texts, digest {digest}")
        return 0
    before = json.loads(gzip.decompress(path.read_bytes()))
    different = [name for name in sorted(before.keys() | now.keys()) if before.get(name) != now.get(name)]
    for name in different:
        print(f"\n{name}\n{difference(before.get(name, ''), now.get(name, ''))}")
    print(f"{len(different)} of {len(now)} texts differ" if different else f"{len(now)} texts are the same, {digest}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
