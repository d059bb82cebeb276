"""The tokens at which an ablated head is missed most, and those it writes to most."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from headbook.analysis.arrays import Floats, Ints
from headbook.schema import Side
from headbook.study.ablation import MissedToken
from headbook.text.tokens import TokenizedSentence, TokenizedText

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


def missed_tokens(
    changes: TokenChanges, heads: Sequence[int], texts: Mapping[int, TokenizedText]
) -> Iterator[MissedToken]:
    """Tokens strictly by rank, the largest changes first, and the one in the middle.

    Args:
        heads: place of each set's one head in `AblationResults.heads`.
        texts: of the sentences, by their place in the input.
    """
    for column, head in enumerate(heads):
        order = np.argsort(-changes.change[:, column], kind="stable")
        middle = (len(order) - 1) // 2
        for rank in sorted({*range(min(LARGEST, len(order))), middle} if len(order) else ()):
            row = order[rank]
            sentence, position = int(changes.sentence[row]), int(changes.position[row])
            yield MissedToken(
                head, rank + 1, len(order), sentence, position,
                *_around(texts[sentence], position),
                float(changes.before[row]), float(changes.change[row, column]),
            )  # fmt: skip


def texts_of(items: Sequence[TokenizedSentence], side: Side) -> dict[int, TokenizedText]:
    """The texts of one side of sentences, by the sentences' places in the input."""
    return {item.sentence.index: item.tokens[side] for item in items}


def _around(text: TokenizedText, position: int) -> tuple[str, str, str]:
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


SHARE = 0.02  # of the tokens
ROUNDING = 1e-5  # relative; what equals the threshold but for it is not above


def top_token_sums(total: Floats, direct: Floats, sentence: Ints, half: Ints) -> Floats:
    """Sums over each head's largest direct effects; where they begin is told by the other half.

    A head's direct effect is what it says to a logit: minus the change without it.

    Args:
        total, direct: changes of logits without heads. *Shape:* ``(token, head)``.
        sentence: row of each token's sentence. *Shape:* ``(token,)``.
        half: of each sentence. *Shape:* ``(sentence,)``.

    Returns:
        Total change, direct change, and how many tokens. *Shape:* ``(3, sentence, head)``.
    """
    largest = np.zeros(direct.shape, dtype=bool)
    for own in (0, 1):
        mine = half[sentence] == own
        if not mine.all():
            least = np.quantile(-direct[~mine], 1 - SHARE, axis=0)
            least += ROUNDING * np.abs(least)
            largest |= mine[:, None] & (-direct > least)
    found = np.zeros((3, len(half), direct.shape[1]))
    for sums, numbers in zip(found, (total, direct, np.ones_like(direct)), strict=True):
        np.add.at(sums, sentence, np.where(largest, numbers, 0))
    return found
