"""Corpora: read and split once, tokenized into memory-mapped shards, and served as batches without loader state."""

from assay.data.batches import Batch, Batches, ValidationWindows, validation_windows
from assay.data.corpora import CORPORA, Corpus, list_corpus, read_corpus
from assay.data.manifest import Manifest, SplitRecord, read_manifest
from assay.data.preparation import folder_for, prepare
from assay.data.progress import Progress
from assay.data.shards import Prepared, Shard, check_lengths, load_tokenizer, open_prepared
from assay.data.tokenizers import Tokenizer
from assay.data.vocabularies import make_tokenizer

__all__ = [
    "CORPORA",
    "Batch",
    "Batches",
    "Corpus",
    "Manifest",
    "Prepared",
    "Progress",
    "Shard",
    "SplitRecord",
    "Tokenizer",
    "ValidationWindows",
    "check_lengths",
    "folder_for",
    "list_corpus",
    "load_tokenizer",
    "make_tokenizer",
    "open_prepared",
    "prepare",
    "read_corpus",
    "read_manifest",
    "validation_windows",
]
