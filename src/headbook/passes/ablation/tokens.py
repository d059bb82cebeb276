"""The tokens at which a model misses a head most."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from headbook.analysis.arithmetic import Floats, Ints
from headbook.study.summaries.removals import MissedAt
from headbook.terms import Side
from headbook.text.tokens import Encoded, Tokens

LARGEST = 10  # tokens of each head
BEFORE, AFTER = 60, 40  # characters around a token


@dataclass(frozen=True, eq=False)
class TokenChanges:
    """How the first target changes at each scored token.

    Attributes:
        sentence: its place in the input. *Shape:* ``(token,)``.
        position: of the token that the score is about; likewise.
        before: what the target is in the whole model; likewise.
        change: *Shape:* ``(token, set)``.
        logits: of the true token's logit, above the mean of all; NaN without one. The same shape.
    """

    sentence: Ints
    position: Ints
    before: Floats
    change: Floats
    logits: Floats

    @classmethod
    def together(cls, parts: Sequence["TokenChanges"]) -> "TokenChanges":
        """Of all batches, in the order of the input."""
        sentence, position, before, change, logits = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("sentence", "position", "before", "change", "logits")
        )
        order = np.lexsort([position, sentence])
        return cls(sentence[order], position[order], before[order], change[order], logits[order])


def missed_at(
    changes: TokenChanges, heads: Sequence[int], texts: Mapping[int, Tokens]
) -> Iterator[MissedAt]:
    """Tokens strictly by rank, the largest changes first, and the one in the middle.

    Args:
        heads: place of each set's one head in `Removals.heads`.
        texts: of the sentences, by their place in the input.
    """
    for column, head in enumerate(heads):
        order = np.argsort(-changes.change[:, column], kind="stable")
        middle = (len(order) - 1) // 2
        for rank in sorted({*range(min(LARGEST, len(order))), middle} if len(order) else ()):
            row = order[rank]
            sentence, position = int(changes.sentence[row]), int(changes.position[row])
            yield MissedAt(
                head, rank + 1, len(order), sentence, position,
                *_around(texts[sentence], position),
                float(changes.before[row]), float(changes.change[row, column]),
            )  # fmt: skip


def texts_of(items: Sequence[Encoded], side: Side) -> dict[int, Tokens]:
    """The texts of one side of sentences, by the sentences' places in the input."""
    return {item.sentence.index: item.tokens[side] for item in items}


def _around(text: Tokens, position: int) -> tuple[str, str, str]:
    """What stands before a token, the token, and what follows; the token alone without a place."""
    start, end = (int(offset) for offset in text.spans[position])
    if start == end:
        return "", text.pieces[position], ""
    before, after = text.text[:start], text.text[end:]
    cut = before[-BEFORE:], after[:AFTER]
    return (
        ("…" if len(before) > BEFORE else "") + cut[0],
        text.text[start:end],
        cut[1] + ("…" if len(after) > AFTER else ""),
    )
