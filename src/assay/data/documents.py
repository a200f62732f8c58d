"""The texts that a stream is made of, from any one on: of files, or of a data set of the Hugging Face hub.

A record without a text (null) and a blank document are documents with nothing in them: they hold their number, and
give no tokens. What can be known of a source without reading it, or fetching anything, is looked at before a run.

The hub's library asks a hub that is not there again and again for half a minute, and says at last that a file of its
cache is missing. So the hub itself is asked for the name first, once.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from assay.config.paths import absolute
from assay.data.sources import documents, files_at
from assay.errors import UsageError, first_line

Documents = Callable[[int], Iterator[str]]
"""The texts from a document on, in an order that never changes."""

_GLANCE_BYTES = 2**24
"""Of a plain file, when it is only asked whether it holds text."""
_PATIENCE_SECONDS = 10.0


def documents_of_files(path: str, text_field: str, limit_bytes: int | None = None) -> Documents:
    """Records of JSON Lines and Parquet files, and other files whole, or as far as a limit.

    What is not text is passed over in a folder, and refused where it is named. Raises `UsageError` without files.
    """
    files, skip_binary = files_at(path), os.path.isdir(absolute(path))

    def read(start: int) -> Iterator[str]:
        return islice(documents(files, text_field, skip_binary=skip_binary, limit_bytes=limit_bytes), start, None)

    return read


def documents_of_dataset(name: str, split: str, text_field: str) -> Documents:
    """Records of a data set of Hugging Face's hub, or of a folder that its library reads, as they come."""

    def read(start: int) -> Iterator[str]:
        from datasets import load_dataset

        if not is_local(name):
            _ask_hub(name)
        try:
            for record in load_dataset(name, split=split, streaming=True).skip(start):
                yield _text(record, text_field, name)
        except UsageError:
            raise
        except Exception as error:  # the library's own kinds, its network's, and those of every format that it reads
            raise UsageError(f"{name} cannot be streamed: {first_line(error)}") from error

    return read


def check_files(path: str, text_field: str) -> None:
    """Raise `UsageError` where the files of a path cannot be read up to a first text."""
    _some_text(documents_of_files(path, text_field, _GLANCE_BYTES)(0), path)


def check_dataset(name: str, split: str, text_field: str) -> None:
    """Raise `UsageError` where a folder cannot be read up to a first text, or the hub has no such data set."""
    if is_local(name):
        _some_text(documents_of_dataset(name, split, text_field)(0), name)
    else:
        _ask_hub(name)


def is_local(name: str) -> bool:
    """Whether the hub's library looks for it on this machine: names of the hub have at most one slash, inside."""
    return os.path.isdir(name) or Path(name).is_absolute() or name.count("/") > 1


def _some_text(texts: Iterable[str], source: str) -> None:
    if not any(text.strip() for text in texts):
        raise UsageError(f"{source} holds no text to stream; name documents with text")


def _text(record: dict[str, Any], text_field: str, name: str) -> str:
    if text_field not in record:
        there = ", ".join(record) or "none"
        raise UsageError(f"{name} lacks the text field {text_field!r} (it has {there}); set data.text_field")
    text = record[text_field]
    if text is None:
        return ""
    if not isinstance(text, str):
        raise UsageError(f"{name}: the field {text_field!r} is not text; name one that is in data.text_field")
    return text


def _ask_hub(name: str) -> None:
    from datasets import config
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError

    if config.HF_HUB_OFFLINE:
        return  # the library looks in its cache then, and nowhere else
    try:
        HfApi(endpoint=config.HF_ENDPOINT).dataset_info(name, timeout=_PATIENCE_SECONDS)
    except (HFValidationError, RepositoryNotFoundError) as error:
        raise UsageError(
            f"there is no folder {name!r}, and no data set of that name on the hub for you; "
            "put the name right, or log in where it is not public"
        ) from error
    except Exception as error:  # of whichever client of HTTP the library has
        raise UsageError(
            f"the hub cannot be asked for the data set {name!r} ({first_line(error)}); go online, or stream from "
            "files with streaming:path"
        ) from error
