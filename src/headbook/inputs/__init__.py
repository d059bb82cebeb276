"""Sentences from files (text, JSON lines, CSV/TSV, Parquet, CoNLL-U), datasets or standard input.

`open_corpus` reads everything once, to find every fault before a model is loaded, and gives a
`Corpus` that yields its sentences lazily, as often as asked.
"""

from headbook.inputs.corpus import Corpus, InputFile, open_corpus
from headbook.inputs.records import NO_HEAD, InputLayout, Selection, Sentence, Word, joined_words
from headbook.inputs.sources import ending

__all__ = [
    "NO_HEAD",
    "Corpus",
    "InputFile",
    "InputLayout",
    "Selection",
    "Sentence",
    "Word",
    "ending",
    "joined_words",
    "open_corpus",
]
