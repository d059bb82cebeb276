"""Tokens at which ablating a head changes the target most, and tokens of largest direct effect."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from headbook.analysis.arrays import Floats, Ints
from headbook.schema import Side
from headbook.study.ablation.results import MissedToken
from headbook.text.tokens import TokenizedSentence, TokenizedText

N_LISTED_TOKENS = 10  # tokens that are listed for each head
CHARACTERS_BEFORE, CHARACTERS_AFTER = 60, 40  # characters shown before and after a token


@dataclass(frozen=True, eq=False)
class TokenChanges:
    """Changes of the first target at each scored token.

    Attributes:
        sentence: index of the sentence in the input. *Shape:* ``(token,)``.
        position: position of the token that the score is about. *Shape:* ``(token,)``.
        before: target of the unablated model. *Shape:* ``(token,)``.
        change: change of the target by ablating each set of heads. *Shape:* ``(token, set)``.
        logits: change of the true token's centred logit; NaN without a language-model head.
            *Shape:* ``(token, set)``.
    """

    sentence: Ints
    position: Ints
    before: Floats
    change: Floats
    logits: Floats

    @classmethod
    def together(cls, parts: Sequence["TokenChanges"]) -> "TokenChanges":
        """Concatenate the changes of all batches, in the order of the input."""
        sentence, position, before, change, logits = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("sentence", "position", "before", "change", "logits")
        )
        order = np.lexsort([position, sentence])
        return cls(sentence[order], position[order], before[order], change[order], logits[order])


def missed_tokens(
    changes: TokenChanges, heads: Sequence[int], texts: Mapping[int, TokenizedText]
) -> Iterator[MissedToken]:
    """Yield for each head the tokens of largest change by rank, and the token of median rank.

    Args:
        changes: changes at each scored token, with one set for each head.
        heads: index of each head in `AblationResults.heads`.
        texts: texts of the sentences, by index in the input.
    """
    for column, head in enumerate(heads):
        order = np.argsort(-changes.change[:, column], kind="stable")
        median_rank = (len(order) - 1) // 2
        for rank in sorted(
            {*range(min(N_LISTED_TOKENS, len(order))), median_rank} if len(order) else ()
        ):
            row = order[rank]
            sentence, position = int(changes.sentence[row]), int(changes.position[row])
            yield MissedToken(
                head, rank + 1, len(order), sentence, position,
                *_text_around(texts[sentence], position),
                float(changes.before[row]), float(changes.change[row, column]),
            )  # fmt: skip


def texts_of(items: Sequence[TokenizedSentence], side: Side) -> dict[int, TokenizedText]:
    """Return the texts of one side of sentences, by index in the input."""
    return {item.sentence.index: item.tokens[side] for item in items}


def _text_around(text: TokenizedText, position: int) -> tuple[str, str, str]:
    """Return the text before a token, of the token, and after the token.

    A token without characters of its own, such as a special token, has no text around it.
    """
    start, end = (int(offset) for offset in text.spans[position])
    if start == end:
        return "", text.pieces[position], ""
    before, after = text.text[:start], text.text[end:]
    return (
        ("…" if len(before) > CHARACTERS_BEFORE else "") + before[-CHARACTERS_BEFORE:],
        text.text[start:end],
        after[:CHARACTERS_AFTER] + ("…" if len(after) > CHARACTERS_AFTER else ""),
    )


# Share of tokens, those of largest direct effect, over which a head's effects are also summed.
TOP_TOKEN_SHARE = 0.02
# A token counts only if its effect exceeds the threshold by more than this share of the threshold,
# since smaller differences are rounding.
THRESHOLD_TOLERANCE = 1e-5


def top_token_sums(total: Floats, direct: Floats, sentence: Ints, half: Ints) -> Floats:
    """Sum changes over the tokens of largest direct effect of each head.

    The direct effect is the contribution of a head to a logit, that is, minus the direct change by
    ablating the head. The threshold for tokens of one half of the sentences is a quantile over the
    tokens of the other half.

    Args:
        total, direct: total and direct changes of logits by ablation. *Shape:* ``(token, head)``.
        sentence: row of each token's sentence. *Shape:* ``(token,)``.
        half: half that each sentence belongs to. *Shape:* ``(sentence,)``.

    Returns:
        Total change, direct change, and number of tokens. *Shape:* ``(3, sentence, head)``.
    """
    largest = np.zeros(direct.shape, dtype=bool)
    for own_half in (0, 1):
        is_own = half[sentence] == own_half
        if not is_own.all():
            thresholds = np.quantile(-direct[~is_own], 1 - TOP_TOKEN_SHARE, axis=0)
            thresholds += THRESHOLD_TOLERANCE * np.abs(thresholds)
            largest |= is_own[:, None] & (-direct > thresholds)
    sums_by_sentence = np.zeros((3, len(half), direct.shape[1]))
    for sums, numbers in zip(sums_by_sentence, (total, direct, np.ones_like(direct)), strict=True):
        np.add.at(sums, sentence, np.where(largest, numbers, 0))
    return sums_by_sentence
