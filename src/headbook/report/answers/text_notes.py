"""Notes on the texts of a study: special tokens that stand twice, and unknown tokens."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from headbook.report.wording import count_text, shortened
from headbook.results.formats import percent
from headbook.schema import DOUBLED, UNKNOWN, UNREADABLE, Side
from headbook.study.manifest import Manifest

# Of a side's tokens that are unknown, or of its texts that consist mostly of such tokens: above it
# they are named. A protein in lower case may be a single unknown token.
MIN_UNKNOWN_SHARE = 0.01
N_EXAMPLES = 3  # of unknown pieces
MAX_LETTERS = 24  # of a piece that is named


class TextNote(NamedTuple):
    """A fact about the texts that changes numbers.

    Attributes:
        text: the fact, as pages print it.
        advice: what whoever ran the model can do.
    """

    text: str
    advice: str


def text_notes(manifest: Manifest) -> Iterator[TextNote]:
    """Yield the notes on the texts of a study; for most studies none."""
    both = manifest.count(Side.TARGET, "tokens") > 0
    for side in Side:
        texts = f"{side} text" if both else "text"
        yield from _doubled(manifest, side, texts)
        if is_unknown(manifest.counts, side):
            yield _unknown(manifest, side, texts)


def _doubled(manifest: Manifest, side: Side, texts: str) -> Iterator[TextNote]:
    total = manifest.counts["sentences"]
    for end, count in _named(manifest.counts, f"{side}.{DOUBLED}."):
        where, _, token = end.partition(" ")
        verb = where if total > 1 else f"{where}s"
        yield TextNote(
            f"{count:,} of {count_text(total, texts)} {verb} with {token}, which the tokenizer "
            "adds, too: it stands there twice, and both count as sink",
            f"expected texts without it: remove {token} from the input",
        )


def _unknown(manifest: Manifest, side: Side, texts: str) -> TextNote:
    unknown, ordinary = _unknown_of(manifest.counts, side)
    examples = sorted(
        _named(manifest.counts, f"{side}.{UNKNOWN}."), key=lambda example: -example[1]
    )
    names = ", ".join(shortened(name, MAX_LETTERS) for name, _ in examples[:N_EXAMPLES])
    unreadable = manifest.count(side, UNREADABLE)
    return TextNote(
        f"{percent(unknown / ordinary)} of the tokens of {texts}s ({unknown:,} of {ordinary:,}) "
        "stand for text that the tokenizer's vocabulary lacks"
        + (f", such as {names}" if names else "")
        + (f"; most of {count_text(unreadable, texts)} is of this kind" if unreadable else ""),
        "expected texts in the language and spelling that the model was trained on (upper and "
        "lower case count), or the model's own tokenizer",
    )


def is_unknown(counts: Mapping[str, int], side: Side) -> bool:
    """Whether more of a side's tokens or texts are unknown than goes without saying."""
    unknown, ordinary = _unknown_of(counts, side)
    unreadable, texts = counts.get(f"{side}.{UNREADABLE}", 0), counts["sentences"]
    return unknown > MIN_UNKNOWN_SHARE * ordinary or unreadable > MIN_UNKNOWN_SHARE * texts


def _unknown_of(counts: Mapping[str, int], side: Side) -> tuple[int, int]:
    """Return the numbers of unknown and of ordinary tokens."""
    ordinary = counts.get(f"{side}.tokens", 0) - counts.get(f"{side}.special", 0)
    return counts.get(f"{side}.{UNKNOWN}", 0), ordinary


def _named(counts: Mapping[str, int], prefix: str) -> Iterator[tuple[str, int]]:
    """Yield the names behind a prefix of keys, with their counts."""
    for key, count in counts.items():
        if key.startswith(prefix):
            yield key.removeprefix(prefix), count
