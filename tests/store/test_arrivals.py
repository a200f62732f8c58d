"""Archives that are brought into a home: nothing in them is trusted, and what is refused leaves nothing."""

import gzip
import io
import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.api.runs import import_archive, listing
from assay.config import Home
from assay.errors import UsageError
from assay.files import seal_file, seal_line
from assay.launch.prepare import ready
from assay.records.evidence import Evidence, ValueProof
from assay.records.status import Status
from assay.records.timing import Block
from assay.store import arrivals
from assay.store.archive import pack
from assay.store.foreign import ForeignCode, check_own_code
from assay.store.run_folder import RunFolder, RunSpec
from assay.studies.archived import check_study
from assay.studies.folder import StudyFolder
from support.children import make_ready
from support.comparisons import record
from support.records import made, result_of

RUN = "20260101-000000-abcdef-0123"
FOLDER = f"runs/{RUN}"
OLD = Path(__file__).parents[1] / "support" / "old_home"
Entries = dict[str, bytes]


def packed(path: Path, entries: Entries) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in entries.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path


def spec(home: Home, run: str, **model: object) -> RunSpec:
    config = make_ready(home).run
    config = config.model_copy(update={"model": config.model.model_copy(update=model)})
    return RunSpec(id=run, created="2026-01-01", identity="abcdef", config=config, data_folder="")


def spec_of(home: Home, run: str, **model: object) -> bytes:
    return seal_file(spec(home, run, **model).model_dump_json(indent=1))


def result(home: Home, run: str, **facts: object) -> bytes:
    return seal_file(result_of(home, run).model_copy(update=facts).model_dump_json(indent=1))


def whole(home: Home, run: str = RUN, **facts: object) -> Entries:
    return {f"runs/{run}/run.json": spec_of(home, run), f"runs/{run}/result.json": result(home, run, **facts)}


def bring(path: Path, home: Home) -> arrivals.Brought:
    return arrivals.unpack(path, home, lambda folder: check_study(folder, home))


def files(home: Home) -> dict[str, bytes]:
    return {str(one.relative_to(home.root)): one.read_bytes() for one in home.root.rglob("*") if one.is_file()}


STEPS = [{"event": "step", "step": step, "loss": 5.0 - step, "seconds": 0.1, "tokens": 8} for step in range(3)]
SEEN = {"event": "evaluation", "step": 3, "loss": 3.5, "perplexity": 33.1, "bits_per_byte": 5.0}
EVIDENCE = {"event": "evidence", "optimization": "lion", "observed": "3 of 3", "verdict": False}
START = {"event": "start", "time": 1.0}
BLOCK = Block(steps=2, seconds=0.2, median_step_seconds=0.1, tokens=16, process_peak_bytes=None)
FIGURES = {
    "steps": 3,
    "tokens": 24,
    "train_loss": 3.0,
    "val_loss": 3.5,
    "val_perplexity": 33.1,
    "val_bits_per_byte": 5.0,
    "evidence": (Evidence(optimization="lion", observed="3 of 3", verdict=False),),
}


def log(*events: dict[str, object]) -> bytes:
    return b"".join(seal_line(json.dumps(one).encode() + b"\n") for one in events)


def trained(home: Home, *events: dict[str, object], **changed: object) -> Entries:
    """A finished run of three steps, with these events, whose result has some other figures."""
    logged = log(*(events or (START, *STEPS, SEEN, EVIDENCE)))
    return {**whole(home, **{**FIGURES, **changed}), f"{FOLDER}/events.jsonl": logged}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"steps": 4}, r"steps \(4 and 3\)"),
        ({"tokens": 25}, r"tokens \(25 and 24\)"),
        ({"train_loss": 2.9}, r"train_loss \(2.9 and 3.0\)"),
        ({"val_loss": 1.5}, r"val_loss \(1.5 and 3.5\)"),
        ({"val_targets": 7}, r"val_targets \(7 and none\)"),
        ({"evidence": (Evidence(optimization="lion", observed="3 of 3", verdict=True),)}, "evidence"),
        ({"values": ValueProof(verdict=True, steps=3)}, "values"),
        ({"blocks": (BLOCK,)}, "blocks"),
    ],
)
def test_a_result_that_its_own_log_contradicts_is_refused(
    changed: dict[str, object], said: str, home: Home, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=f"{FOLDER} is not the record of one run: .* differ in {said}"):
        bring(packed(tmp_path / "a.tar.gz", trained(home, **changed)), home)
    assert not (home.root / FOLDER).exists()


def test_a_result_without_a_log_has_done_no_step(home: Home, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"differ in steps \(3 and 0\)"):
        bring(packed(tmp_path / "a.tar.gz", whole(home, **FIGURES)), home)


def test_a_result_that_agrees_with_its_log_is_taken(home: Home, tmp_path: Path) -> None:
    assert bring(packed(tmp_path / "a.tar.gz", trained(home)), home).new == [FOLDER]


def test_a_resumed_run_agrees_with_its_log_though_a_line_was_cut_off(home: Home, tmp_path: Path) -> None:
    entries = trained(home)
    cut = log(START, *STEPS) + log(SEEN)[:20] + b"\n" + log({**START, "resumed_at": 2}, STEPS[2], SEEN, EVIDENCE)
    assert bring(packed(tmp_path / "a.tar.gz", {**entries, f"{FOLDER}/events.jsonl": cut}), home).new == [FOLDER]


def test_a_log_whose_lines_cannot_be_read_is_named_with_the_contradiction(home: Home, tmp_path: Path) -> None:
    entries = trained(home)
    entries[f"{FOLDER}/events.jsonl"] = entries[f"{FOLDER}/events.jsonl"].replace(b'"tokens": 8', b'"tokens": 9', 1)
    with pytest.raises(UsageError, match=r"\(some lines cannot be read\) differ in tokens \(24 and 16\)"):
        bring(packed(tmp_path / "a.tar.gz", entries), home)


def test_a_run_that_ended_early_may_be_a_step_ahead_of_its_log(home: Home, tmp_path: Path) -> None:
    entries = trained(home, START, *STEPS[:2], status=Status.FAILED)
    assert bring(packed(tmp_path / "a.tar.gz", entries), home).new == [FOLDER]


def test_the_runs_of_an_old_home_are_taken(home: Home, tmp_path: Path) -> None:
    old = Home(tmp_path / "old")
    shutil.copytree(OLD, old.root)
    folders = [one for one in old.runs.iterdir() if (one / "run.json").exists()]
    pack(old, folders, tmp_path / "a.tar.gz")
    assert len(bring(tmp_path / "a.tar.gz", home).new) == len(folders) == 5


def test_code_stays_outside(home: Home, tmp_path: Path) -> None:
    path = packed(tmp_path / "a.tar.gz", {**whole(home), f"{FOLDER}/evil.py": b"print('evil')"})
    assert bring(path, home) == ([FOLDER], [], [f"{FOLDER}/evil.py"])
    assert not [name for name in files(home) if name.endswith(".py")]


@pytest.mark.parametrize("kind", ["run", "study"])
def test_code_that_an_imported_record_names_does_not_run_unasked(kind: str, home: Home, tmp_path: Path) -> None:
    evil = {"own": "evil.py:make", "own_folder": str(tmp_path)}
    entries = {f"{FOLDER}/run.json": spec_of(home, RUN, **evil)}
    config = spec(home, RUN, **evil).config
    if kind == "study":
        study = record().model_copy(update={"base": config})
        cells = [
            one.model_copy(update={"result": one.result.model_copy(update={"config": config})}) for one in study.cells
        ]
        study = study.model_copy(update={"cells": tuple(cells)})
        entries = {f"reports/{study.id}/comparison.json": seal_file(study.model_dump_json(indent=1))}
    bring(packed(tmp_path / "a.tar.gz", entries), home)
    with pytest.raises(
        ForeignCode, match=r"the function make of '.*evil\.py', which an imported record names"
    ) as refusal:
        ready(config.asked(), home)
    refusal.value.allow()
    check_own_code(home, config.model)


def test_damaged_notes_of_foreign_code_let_no_code_run(home: Home, tmp_path: Path) -> None:
    (home.root / "foreign_code.json").write_text("{")
    config = make_ready(home).run
    own = config.model.model_copy(update={"own": "evil.py:make"})
    with pytest.raises(UsageError, match="nobody knows which code came with imported records"):
        ready(config.model_copy(update={"model": own}).asked(), home)


@pytest.mark.parametrize("name", ["run.json", "result.json"])
def test_a_record_under_the_name_of_another_run_is_refused(name: str, home: Home, tmp_path: Path) -> None:
    honest = made(home, make_ready(home))
    honest.write_result(result_of(home, honest.id))
    forged = whole(home)
    forged[f"{FOLDER}/{name}"] = {"run.json": spec_of, "result.json": result}[name](home, honest.id)
    before = files(home)
    with pytest.raises(UsageError, match=f"it is that of the run '{honest.id}'"):
        bring(packed(tmp_path / "a.tar.gz", forged), home)
    assert files(home) == before


def test_a_study_with_another_result_of_a_run_that_is_here_is_refused(home: Home, tmp_path: Path) -> None:
    study = record()
    honest = study.cells[0].result
    folder = RunFolder(home.runs / honest.run)
    folder.path.mkdir()
    folder.write_result(honest.model_copy(update={"val_loss": 1.5}))
    entries = {f"reports/{study.id}/comparison.json": seal_file(study.model_dump_json(indent=1))}
    path = packed(tmp_path / "a.tar.gz", entries)
    with pytest.raises(UsageError, match=f"its result of the run {honest.run} has another val_loss"):
        bring(path, home)
    folder.write_result(honest)
    assert bring(path, home).new == [f"reports/{study.id}"]
    assert StudyFolder(home.reports / study.id).record() == study


def test_a_run_that_differs_is_refused_and_stays(home: Home, tmp_path: Path) -> None:
    folder = made(home, make_ready(home))
    folder.write_result(result_of(home, folder.id))
    path = tmp_path / "a.tar.gz"
    pack(home, [folder.path], path)
    folder.write_result(result_of(home, folder.id).model_copy(update={"steps": 3}))
    before = files(home)
    with pytest.raises(UsageError, match=r"result\.json differs"):
        bring(path, home)
    assert files(home) == before


@pytest.mark.parametrize("change", [lambda text: text.replace(b"4.5", b"4.6"), lambda text: b'{\n "loss": 4.5\n}'])
def test_a_record_that_is_damaged_or_none_is_refused(
    change: Callable[[bytes], bytes], home: Home, tmp_path: Path
) -> None:
    entries = whole(home, train_loss=4.5)
    entries[f"{FOLDER}/result.json"] = change(entries[f"{FOLDER}/result.json"])
    other = Home(tmp_path / "other")
    with pytest.raises(UsageError, match=r"cannot be taken: .*result\.json cannot be read"):
        bring(packed(tmp_path / "a.tar.gz", entries), other)
    assert files(other) == {}


def test_an_archive_that_is_cut_off_anywhere_leaves_nothing(home: Home, tmp_path: Path) -> None:
    archive = packed(tmp_path / "a.tar.gz", {**whole(home), f"{FOLDER}/worker.log": b"x" * 5000})
    content, other, cut = archive.read_bytes(), Home(tmp_path / "other"), tmp_path / "cut.tar.gz"
    for place in range(0, len(content), 23):
        for damaged in (content[:place], content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]):
            cut.write_bytes(damaged)
            if gzip_header_alone(place, damaged, content):
                continue
            with pytest.raises(UsageError):
                bring(cut, other)
    assert files(other) == {}


def gzip_header_alone(place: int, damaged: bytes, content: bytes) -> bool:
    """True if the damage is in the time or the name that a gzip file has, which nobody reads."""
    return len(damaged) == len(content) and place < 30


def test_files_of_too_many_bytes_are_refused(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "_LEAST_LIMIT", 1 << 20)
    path = packed(tmp_path / "a.tar.gz", {**whole(home), f"{FOLDER}/worker.log": bytes(8 << 20)})
    with pytest.raises(UsageError, match=r"it comes to more than .* the most for an archive of its size"):
        bring(path, Home(tmp_path / "other"))
    assert files(Home(tmp_path / "other")) == {}


def test_descriptions_are_not_read_without_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "LONGEST_RECORD", 1 << 20)
    entry = tarfile.TarInfo(f"{FOLDER}/run.json")
    entry.type, entry.size = tarfile.XHDTYPE, 4 << 20
    with gzip.open(tmp_path / "a.tar.gz", "wb") as stream:
        stream.write(entry.tobuf() + bytes(4 << 20))
    with pytest.raises(UsageError, match=r"an entry's description has more than 1\.00 MiB"):
        bring(tmp_path / "a.tar.gz", Home(tmp_path / "home"))


def test_too_many_files_are_refused(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "_MOST_FILES", 1)
    with pytest.raises(UsageError, match="it has more than 1 files"):
        bring(packed(tmp_path / "a.tar.gz", whole(home)), home)


def test_each_byte_of_an_archive_is_read_once(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [f"20260101-000000-abcdef-{number:04x}" for number in range(30)]
    path = packed(tmp_path / "a.tar.gz", {name: one for run in runs for name, one in whole(home, run).items()})
    read = 0

    def counted(self: gzip.GzipFile, count: int = -1) -> bytes:
        nonlocal read
        content = original(self, count)
        read += len(content)
        return content

    original = gzip.GzipFile.read
    monkeypatch.setattr(gzip.GzipFile, "read", counted)
    assert len(bring(path, Home(tmp_path / "other")).new) == 30
    assert read == len(gzip.decompress(path.read_bytes()))


def written(path: Path, *entries: tuple[str, Callable[[tarfile.TarInfo], object]]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, change in entries:
            entry = tarfile.TarInfo(name)
            entry.size = 1
            change(entry)
            archive.addfile(entry, io.BytesIO(b"x") if entry.isreg() else None)
    return path


def of_type(kind: bytes, target: str) -> Callable[[tarfile.TarInfo], object]:
    def change(entry: tarfile.TarInfo) -> None:
        entry.type, entry.linkname, entry.size = kind, target, 0

    return change


@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd",
        "../../outside/run.json",
        f"{FOLDER}/../../../x",
        f"{FOLDER}/.hidden",
        "runs/run.json",
        "store.sqlite",
        "data/corpus/tokens",
        f"{FOLDER}/" + "n" * 300,
    ],
)
def test_names_outside_of_runs_and_studies_are_refused(name: str, tmp_path: Path) -> None:
    path, home = written(tmp_path / "a.tar.gz", (name, lambda entry: None)), Home(tmp_path / "deep/home")
    with pytest.raises(UsageError, match="is no file of a run or study"):
        bring(path, home)
    assert not home.root.exists()


def test_an_archive_that_was_unpacked_and_packed_again_is_taken(home: Home, tmp_path: Path) -> None:
    """Its folders are entries, too."""
    for name, content in whole(home).items():
        (tmp_path / "loose" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "loose" / name).write_bytes(content)
    with tarfile.open(tmp_path / "again.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "loose" / "runs", "runs")
    assert bring(tmp_path / "again.tar.gz", Home(tmp_path / "other")).new == [FOLDER]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.GNUTYPE_SPARSE])
def test_links_and_devices_are_refused(kind: bytes, tmp_path: Path) -> None:
    path, home = written(tmp_path / "a.tar.gz", (f"{FOLDER}/run.json", of_type(kind, "/etc/passwd"))), Home(tmp_path)
    with pytest.raises(UsageError, match="is no file of a run or study"):
        bring(path, home)


def test_a_file_that_comes_twice_is_refused(home: Home, tmp_path: Path) -> None:
    same = (f"{FOLDER}/worker.log", lambda entry: None)
    with pytest.raises(UsageError, match=r"it has .*worker\.log twice"):
        bring(written(tmp_path / "a.tar.gz", same, same), home)


@pytest.mark.parametrize("content", [b"", b"not a tar file", b"\x1f\x8b\x08\x00"])
def test_a_file_that_is_no_archive_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="is not an archive of runs"):
        bring(path, Home(tmp_path / "home"))


@pytest.mark.parametrize("name", ["nothing", "n" * 300, "folder"])
def test_a_file_that_cannot_be_read_is_refused_and_makes_no_home(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match="cannot be read: "):
        import_archive(tmp_path / name, home=tmp_path / "home")
    assert not (tmp_path / "home").exists()


def test_a_run_in_the_folder_of_another_is_named_as_damaged(home: Home) -> None:
    honest = made(home, make_ready(home))
    honest.write_result(result_of(home, honest.id))
    forged = RunFolder(home.runs / RUN)
    forged.path.mkdir()
    values = json.loads(honest.result_file.read_bytes())
    forged.result_file.write_text(
        json.dumps({**values, "val_loss": 0.1, "digest": None}).replace(', "digest": null', "")
    )
    forged.spec_file.write_bytes(honest.spec_file.read_bytes())
    entries, notes = listing(home)
    assert {one.run: (one.status, one.val_loss) for one in entries} == {
        honest.id: ("done", None),
        RUN: ("damaged", None),
    }
    assert any(RUN in note and honest.id in note for note in notes)
