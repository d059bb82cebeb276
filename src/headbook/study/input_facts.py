"""Facts of a manifest about its texts: inputs, remarks of readers, and texts that were cut."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from headbook.schema import Side

MAX_NAMED_INPUTS = 3  # inputs that one line names


@dataclass(frozen=True)
class InputFacts:
    """An input file or dataset, with its hash and its numbers of sentences.

    Attributes:
        name: name of the file or dataset.
        sha256: hash of a file's bytes, or of a dataset's rows; empty if nothing was read.
        sentences: number of sentences that were used.
        blank: number of blank lines.
        left: number of sentences that ``--limit`` or ``--sample`` left out; None if not known.
        remarks: what its reader did beyond reading, in words, with how often.
        sample: whether it is one of the sample inputs of Headbook, whose texts are made up.
    """

    name: str
    sha256: str
    sentences: int
    blank: int
    left: int | None = 0
    remarks: Mapping[str, int] = field(default_factory=dict)
    sample: bool = False

    def messages(self) -> Iterator[str]:
        """Yield what the reader did beyond reading, with how often."""
        for remark, number in self.remarks.items():
            yield f"{self.name}: {remark}: {number:,}"


def some_names(inputs: Sequence[InputFacts]) -> str:
    """Return the names of inputs; of many, the first ones and the number of others."""
    names = ", ".join(file.name for file in inputs[:MAX_NAMED_INPUTS])
    n_more = len(inputs) - MAX_NAMED_INPUTS
    return f"{names} and {n_more:,} more" if n_more > 0 else names


def cut_texts(counts: Mapping[str, int], limit: int) -> Iterator[str]:
    """Yield a message on the texts of each side that were longer than the longest sequence.

    Args:
        counts: numbers of texts, tokens and characters, as in a manifest.
        limit: length of the longest sequence, in tokens.
    """
    for side in Side:
        cut, lost, left_out = (
            counts.get(f"{side}.{name}", 0) for name in ("cut_sentences", "cut_tokens", "left_out")
        )
        if cut:
            after = f" and {_amount(left_out, 'character')} after them" if left_out else ""
            yield (
                f"{_amount(cut, f'{side} text')} longer than {limit:,} tokens: cut at the end, "
                f"{_amount(lost, 'token')}{after} lost"
            )


def _amount(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
