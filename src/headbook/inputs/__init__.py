"""Sentences from files: text, JSON lines, CSV/TSV, Parquet, CoNLL-U or standard input.

`open_corpus` reads everything once, to find every fault before a model is loaded, and gives a
`Corpus` that yields its sentences lazily, as often as asked.
"""

from headbook.inputs.corpus import TREEBANK, Corpus, InputFile, open_corpus
from headbook.inputs.sentence import NO_HEAD, Sentence, Word, joined_words

__all__ = [
    "NO_HEAD",
    "TREEBANK",
    "Corpus",
    "InputFile",
    "Sentence",
    "Word",
    "joined_words",
    "open_corpus",
]
