"""Corpora: read and split once, tokenized into memory-mapped shards, and served as batches without loader state.

Names are imported on first use, so that a process that only reports progress imports no NumPy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.data.corpora import CORPORA as CORPORA
    from assay.data.corpora import list_corpus as list_corpus
    from assay.data.preparation import folder_for as folder_for
    from assay.data.preparation import make_tokenizer as make_tokenizer
    from assay.data.preparation import prepare as prepare
    from assay.data.prepared_folder import Batch as Batch
    from assay.data.prepared_folder import Batches as Batches
    from assay.data.prepared_folder import Manifest as Manifest
    from assay.data.prepared_folder import Prepared as Prepared
    from assay.data.prepared_folder import Shard as Shard
    from assay.data.prepared_folder import SplitRecord as SplitRecord
    from assay.data.prepared_folder import ValidationWindows as ValidationWindows
    from assay.data.prepared_folder import check_lengths as check_lengths
    from assay.data.prepared_folder import load_tokenizer as load_tokenizer
    from assay.data.prepared_folder import open_prepared as open_prepared
    from assay.data.prepared_folder import read_manifest as read_manifest
    from assay.data.prepared_folder import validation_windows as validation_windows
    from assay.data.progress import Progress as Progress
    from assay.data.sources import Corpus as Corpus
    from assay.data.sources import read_corpus as read_corpus
    from assay.data.tokenizers import Tokenizer as Tokenizer

_MODULES = {
    "Batch": "prepared_folder",
    "Batches": "prepared_folder",
    "CORPORA": "corpora",
    "Corpus": "sources",
    "Manifest": "prepared_folder",
    "Prepared": "prepared_folder",
    "Progress": "progress",
    "Shard": "prepared_folder",
    "SplitRecord": "prepared_folder",
    "Tokenizer": "tokenizers",
    "ValidationWindows": "prepared_folder",
    "check_lengths": "prepared_folder",
    "folder_for": "preparation",
    "list_corpus": "corpora",
    "load_tokenizer": "prepared_folder",
    "make_tokenizer": "preparation",
    "open_prepared": "prepared_folder",
    "prepare": "preparation",
    "read_corpus": "sources",
    "read_manifest": "prepared_folder",
    "validation_windows": "prepared_folder",
}

__all__ = [*_MODULES]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = found
    return found
