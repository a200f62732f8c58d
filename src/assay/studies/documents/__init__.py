"""Published documents as data: their tables, the changes that their texts print, and their faults.

Several studies may repeat one document. Each names it, and lists which of its own rows repeats which published one:

    published:
      library: fahey
      repeats: {"Default, none": baseline}

The folder is the registry: one file is one document.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.config.loading import parse_mapping, read_text
from assay.errors import among, short_text, suggestion

_FOLDER = Path(__file__).parent
_KEYS = ("library", "repeats", "wrong")


def documents() -> list[str]:
    """Return the names of all documents."""
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def with_published(written: Any) -> Any:
    """Return the values of `published` with the table of the document that they name, if they name one.

    Raises `ValueError` for an unknown document, and for a row that its table does not have.
    """
    if not isinstance(written, Mapping) or "library" not in written:
        return written
    for key in written:
        if key not in _KEYS:
            raise ValueError(f"the key {key!r} is unknown{suggestion(str(key), list(_KEYS))}")
    table = _document(written["library"])
    repeats, wrong = written.get("repeats") or {}, written.get("wrong") or ()
    if not isinstance(repeats, Mapping):
        raise ValueError(f"repeats is {short_text(repeats)}; give the document's rows, each with the study's row")
    if not isinstance(wrong, list | tuple):
        raise ValueError(f"wrong is {short_text(wrong)}; give a list of sentences")
    names = [row["name"] for row in table.get("rows", ())]
    for name in repeats:
        if name not in names:
            hint = among(str(name), names)
            raise ValueError(f"repeats names the row {short_text(name)}, which the document does not have{hint}")
    rows = [{**row, "row": repeats.get(row["name"])} for row in table.get("rows", ())]
    return {**table, "rows": rows, "wrong": [*table.get("wrong", ()), *wrong]}


def _document(name: Any) -> dict[str, Any]:
    import yaml

    known = documents()
    if name not in known:
        hint = among(str(name), known)
        raise ValueError(f"the library has no document {short_text(name)}{hint}")
    path = _FOLDER / f"{name}.yaml"
    found: dict[str, Any] = parse_mapping(read_text(path), str(path), "no document", yaml.safe_load)
    return found
