"""Composition of the last states of a sentence by attention rollout, as pictures and a table."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headbook.charts import images
from headbook.charts.theme import rgba_ramp
from headbook.pages.parts.table import PageTable, Row, WordsCell, words_cell
from headbook.pages.parts.text import distinct_tokens
from headbook.report.wording import stored_weight, visible
from headbook.schema import RolloutKind
from headbook.study.sentence_data import StoredText

COLOURS = 32  # colours of a picture, few since each picture has its own palette
MOST_TOKENS = 48  # rows and columns of a picture, and rows of the table
OTHERS = 3  # sources that a cell names beside the token itself
MIN_CELL, MAX_CELL = 16, 26  # pixels of a weight, so that names of tokens do not overlap
PICTURE = 430  # pixels of a picture of few tokens
LETTERS = 14  # letters of a token's name beside the picture
NAMES = {
    RolloutKind.MEASURED: "measured context-mixing ratios",
    RolloutKind.HALF: "one half in each layer",
}
Steps = NDArray[np.uint8]


@dataclass(frozen=True)
class RolloutMixture:
    """The composition of the last state of each token, as a picture.

    Attributes:
        title: assumption on the share that each layer keeps.
        sentences: tokens with the least and the most of their own input, in sentences.
        note: how to read the picture, also for readers who cannot see it.
        image: picture with a pixel for each share, as an image address.
        side: pixels of the picture in both directions; ``left``, ``top`` and ``right`` are margins
            for names.
        rows, columns: places of the tokens in pixels, and their names.
    """

    title: str
    sentences: tuple[str, ...]
    note: str
    image: str
    side: int
    left: int
    top: int
    right: int
    rows: tuple[tuple[float, str], ...]
    columns: tuple[tuple[float, str], ...]


@dataclass(frozen=True)
class Sources:
    """The composition of the last states of a sentence in one stack.

    Attributes:
        mixture: the picture.
        table: the own share of each token and its largest other sources.
        cut: tokens that pictures and table leave out.
    """

    mixture: RolloutMixture
    table: PageTable
    cut: int


def sources(shares: Mapping[str, Steps], text: StoredText) -> Sources | None:
    """Return picture and table of one sentence; None if rollout was not measured.

    With measured mixing ratios if they are known; tables have both kinds.

    Args:
        shares: shares by kind of rollout, in steps; see `SentenceData.rollouts`.
    """
    kind = next((kind for kind in NAMES if kind in shares), None)
    if kind is None:
        return None
    names = [visible(piece) for piece in distinct_tokens(text.pieces)]
    quoted = _quoted(text)
    return Sources(
        mixture=_mixture(kind, shares[kind], names, text),
        table=PageTable(
            ("Last state", "itself", "others"),
            tuple(
                Row(
                    words_cell(name, foreign=True),
                    tuple(_cells(shares[kind][index], index, quoted)),
                )
                for index, name in enumerate(names[:MOST_TOKENS])
            ),
            "Its own input, and the three largest others.",
            "numbers origins",
        ),
        cut=max(0, len(names) - MOST_TOKENS),
    )


def _mixture(kind: RolloutKind, steps: Steps, names: list[str], text: StoredText) -> RolloutMixture:
    corner = steps[:MOST_TOKENS, :MOST_TOKENS]
    most = max(int(corner.max()), 1)
    scaled = np.rint(corner / most * (COLOURS - 1)).astype(np.uint8)
    longest = max(len(name[:LETTERS]) for name in names)
    cell = max(MIN_CELL, min(MAX_CELL, PICTURE // len(corner)))
    labels = [(cell * (i + 0.5), name[:LETTERS]) for i, name in enumerate(names[: len(corner)])]
    return RolloutMixture(
        title=NAMES[kind],
        sentences=tuple(_sentences(steps, _quoted(text), text.special)),
        note="Rows: states after the last layer, columns: inputs. Background: 0, strongest colour: "
        f"{stored_weight(most)}, the largest share here.",
        image=images.map_preview(scaled, rgba_ramp(COLOURS)),
        side=cell * len(corner),
        left=7 * longest + 10,
        top=6 * longest + 12,
        right=4 * longest + 8,
        rows=tuple(labels),
        columns=tuple(labels),
    )


def _quoted(text: StoredText) -> list[str]:
    """Return tokens in quotation marks, with their positions if a token occurs twice."""
    counts = Counter(text.pieces)
    return [
        f"“{visible(piece)}”" + (f" (token {index})" if counts[piece] > 1 else "")
        for index, piece in enumerate(text.pieces)
    ]


def _sentences(steps: Steps, names: list[str], special: tuple[bool, ...]) -> Iterator[str]:
    """Yield sentences on the ordinary tokens with the least and the most of their own input."""
    ordinary = np.flatnonzero(~np.array(special))
    if not len(ordinary):
        return
    own = steps[ordinary, ordinary]
    least, most = (int(ordinary[place]) for place in (own.argmin(), own.argmax()))
    yield f"Lowest share of own input: {_sentence(steps[least], least, names)}"
    if most != least:
        yield f"Highest share of own input: {_sentence(steps[most], most, names)}"


def _sentence(shares: Steps, place: int, names: list[str]) -> str:
    others = ", ".join(_others(shares, place, names))
    own = stored_weight(int(shares[place]))
    return f"{names[place]}, {own}" + (f" ({others})." if others else ".")


def _cells(shares: Steps, place: int, names: list[str]) -> tuple[str, WordsCell]:
    others = ", ".join(_others(shares, place, names))
    return stored_weight(int(shares[place])), words_cell(others, foreign=True)


def _others(shares: Steps, place: int, names: list[str]) -> Iterator[str]:
    """Yield the largest sources except the token itself; of equals, the first."""
    order = np.argsort(-shares.astype(int), kind="stable")
    for other in [i for i in order if i != place and shares[i] > 0][:OTHERS]:
        yield f"{stored_weight(int(shares[other]))} {names[other]}"
