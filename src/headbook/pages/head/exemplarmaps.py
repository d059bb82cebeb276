"""One exemplar three times: as it is, without the sink, and by what the values carry."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headbook.charts.base import images
from headbook.charts.base.ink import DIVERGING, STOPS, ink
from headbook.report.numbers.results import StackResults
from headbook.study.sentencedata import STEPS, Exemplar

COLOURS = 32  # a picture carries its palette


@dataclass(frozen=True)
class Panel:
    """One of the maps.

    Attributes:
        title: what is drawn.
        note: how to read it; also its text for who cannot see it.
        image: the map as an image address.
    """

    title: str
    note: str
    image: str


@dataclass(frozen=True)
class ExemplarMaps:
    """The maps of the strongest exemplar.

    Attributes:
        sentence: number of the sentence.
        panels: two or three maps; the last where values are known.
        size: tokens that look, tokens that are looked at.
    """

    sentence: int
    panels: tuple[Panel, ...]
    size: tuple[int, int]


def exemplar_maps(results: StackResults, exemplar: Exemplar) -> ExemplarMaps:
    """The maps of a head's strongest exemplar."""
    sentence = results.study.sentence_data.sentences[exemplar.index]
    text = sentence.texts[results.stack.keys]
    sink, raw = text.sink(causal=results.stack.causal), exemplar.attention
    panels = [
        _panel("all keys", "weights as the model computes them", raw),
        _panel("sink masked", "without the columns of the sink", np.where(sink, 0, raw)),
    ]
    if len(exemplar.norms):
        carried = raw * exemplar.norms
        most = float(carried.max()) or 1.0
        scaled = (carried / most * STEPS).round().astype(np.uint8)
        note = "each weight times the norm of its value after W_O, over the largest"
        panels.append(_panel("value-weighted", note, scaled))
    return ExemplarMaps(sentence.number, tuple(panels), (raw.shape[0], raw.shape[1]))


def alike(results: StackResults, exemplar: Exemplar) -> ExemplarMaps | None:
    """What a head writes for every two tokens of its strongest exemplar, and how they look.

    None where values are not available.
    """
    if not exemplar.written.size:
        return None
    written, rows = exemplar.written
    panels = tuple(
        _panel(*each, signed=True)
        for each in (
            ("head outputs", "cosine of the outputs for two tokens", written),
            ("attention rows", "cosine of the rows of two tokens", rows),
        )
    )
    sentence = results.study.sentence_data.sentences[exemplar.index]
    return ExemplarMaps(sentence.number, panels, (written.shape[0], written.shape[1]))


def _panel(title: str, note: str, cells: "NDArray[np.uint8]", *, signed: bool = False) -> Panel:
    """A map; ``signed`` ones run from -1 to 1."""
    palette = ink(COLOURS, DIVERGING if signed else STOPS)
    return Panel(title, note, images.preview(cells // (256 // COLOURS), palette))
