"""Sentences from files (text, tables, treebanks), datasets, objects or standard input.

`open_corpus` reads all inputs once, to find every fault before a model is loaded, and returns a
`Corpus`, which yields its sentences lazily and can be iterated repeatedly.
"""

from headbook.inputs.corpus import Corpus, InputFile, open_corpus
from headbook.inputs.objects import input_sources
from headbook.inputs.records import (
    NO_HEAD,
    InputLayout,
    Region,
    Selection,
    TextRecord,
    Word,
    joined_pair,
    joined_words,
)
from headbook.inputs.sources import InputSource, ending

__all__ = [
    "NO_HEAD",
    "Corpus",
    "InputFile",
    "InputLayout",
    "InputSource",
    "Region",
    "Selection",
    "TextRecord",
    "Word",
    "ending",
    "input_sources",
    "joined_pair",
    "joined_words",
    "open_corpus",
]
