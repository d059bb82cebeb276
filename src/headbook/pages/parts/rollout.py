"""What the last states of a sentence's tokens are made of, by attention rollout."""

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

COLOURS = 32  # of a picture; it carries its palette
MOST_TOKENS = 48  # rows and columns of a picture, and rows of the table
OTHERS = 3  # sources that a cell names beside the token itself
MIN_CELL, MAX_CELL = 13, 24  # pixels of a weight, so that names of tokens do not overlap
PICTURE = 430  # pixels of a picture of few tokens
LETTERS = 14  # of a token's name beside the picture
NAMES = {
    RolloutKind.MEASURED: "measured context-mixing ratios",
    RolloutKind.HALF: "one half in each layer",
}
Steps = NDArray[np.uint8]


@dataclass(frozen=True)
class TokenLabel:
    """A token's name beside the picture: where it stands, and what it says."""

    place: float
    text: str


@dataclass(frozen=True)
class RolloutMixture:
    """What each token's last state is made of, as a picture.

    Attributes:
        title: what each layer is taken to keep.
        sentences: what stands out, in sentences.
        note: how to read the picture; also its text for who cannot see it.
        image: one pixel a share, as an image address.
        side: pixels of the picture in both directions; ``left``, ``top`` and ``right`` are margins
            for names.
        rows, columns: names of the tokens.
    """

    title: str
    sentences: tuple[str, ...]
    note: str
    image: str
    side: int
    left: int
    top: int
    right: int
    rows: tuple[TokenLabel, ...]
    columns: tuple[TokenLabel, ...]


@dataclass(frozen=True)
class Sources:
    """Where a sentence's last states come from, in one stack.

    Attributes:
        mixtures: pictures; measured ratios first, where they are known.
        table: the same: for each picture a token's own share and its largest other sources.
        cut: tokens that pictures and table leave out.
    """

    mixtures: tuple[RolloutMixture, ...]
    table: PageTable
    cut: int


def sources(found: Mapping[str, Steps], text: StoredText) -> Sources | None:
    """Pictures and table of one sentence; None where nothing was measured.

    Args:
        found: shares by kind of rollout, in steps; see `SentenceData.rollouts`.
    """
    kinds = [kind for kind in NAMES if kind in found]
    if not kinds:
        return None
    names = [visible(piece) for piece in distinct_tokens(text.pieces)]
    quoted = _quoted(text)
    return Sources(
        mixtures=tuple(_mixture(kind, found[kind], names, text) for kind in kinds),
        table=PageTable(
            ("Last state", *(t for kind in kinds for t in (f"itself, {NAMES[kind]}", "others"))),
            tuple(
                Row(
                    words_cell(name, foreign=True),
                    tuple(c for kind in kinds for c in _cells(found[kind][index], index, quoted)),
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
    labels = [
        TokenLabel(cell * (i + 0.5), name[:LETTERS]) for i, name in enumerate(names[: len(corner)])
    ]
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
    """Tokens in quotation marks, with their places where a token stands there twice."""
    counts = Counter(text.pieces)
    return [
        f"“{visible(piece)}”" + (f" (token {index})" if counts[piece] > 1 else "")
        for index, piece in enumerate(text.pieces)
    ]


def _sentences(steps: Steps, names: list[str], special: tuple[bool, ...]) -> Iterator[str]:
    """The ordinary tokens that keep most and least of themselves."""
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
    """The largest sources but the token itself; the first of equals."""
    order = np.argsort(-shares.astype(int), kind="stable")
    for other in [i for i in order if i != place and shares[i] > 0][:OTHERS]:
        yield f"{stored_weight(int(shares[other]))} {names[other]}"
