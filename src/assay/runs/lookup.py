"""From what a person calls a run to its folder: an id, the start of one, or `last`."""

from collections.abc import Iterator

from assay.config.home import Home
from assay.errors import UsageError, meant
from assay.runs.folder import RunFolder


def run_folders(home: Home) -> Iterator[RunFolder]:
    """Every run's folder, oldest first; hidden ones are being removed, and one without files is just being made."""
    if home.checked().runs.is_dir():
        for path in sorted(home.runs.iterdir()):
            folder = RunFolder(path)
            if not path.name.startswith(".") and (folder.spec_file.exists() or folder.result_file.exists()):
                yield folder


def find(home: Home, name: str) -> RunFolder:
    """The run with this id or with the only id that starts so; `last` is the one that was started last.

    Raises `UsageError` where there is none, or more than one.
    """
    folders = list(run_folders(home))
    if not folders:
        raise UsageError(f"there are no runs in {home.runs}; `assay train` makes one, and ASSAY_HOME says where")
    if name == "last":
        return min(folders, key=lambda folder: folder.age_seconds())
    matching = [folder for folder in folders if name and folder.id.startswith(name)]
    exact = [folder for folder in matching if folder.id == name]
    if len(exact or matching) == 1:
        return (exact or matching)[0]
    if matching:
        shown = ", ".join(folder.id for folder in matching[:3]) + (", …" if len(matching) > 3 else "")
        raise UsageError(f"{name!r} is the start of {len(matching)} runs ({shown}); write more of the id")
    hint = meant(name, [folder.id for folder in folders]) or "; `assay runs ls` lists them"
    raise UsageError(f"there is no run {name!r} in {home.runs}{hint}")
