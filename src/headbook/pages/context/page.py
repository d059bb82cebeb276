"""What heads write: which tokens they treat alike, how far apart, and around which tokens."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from headbook.analysis.accumulators import CHOICE, REPORT
from headbook.charts import Figure
from headbook.metrics.outputs.segmentation import MEASURES
from headbook.pages.context.anchors import anchors_by_head, anchors_by_layer
from headbook.pages.context.contextcurves import Line, curve
from headbook.pages.context.contextwords import (
    CENTRED,
    DISTANCE,
    ENDS,
    PREFERENCE,
    REPETITION,
    ROWS,
    SEGMENTS,
    SIMILARITY,
    summary,
)
from headbook.pages.parts.across import across
from headbook.pages.parts.cells import Cell
from headbook.pages.parts.menu import ANALYSES
from headbook.pages.parts.page import Page, StackSection, gap_text
from headbook.pages.parts.rows import layer_table
from headbook.pages.parts.table import Row, Table
from headbook.report.findings.finding import head_link, metric, metric_link
from headbook.report.numbers.results import NO_ESTIMATE, StackResults, descending, study_of
from headbook.report.wording import VIEWS, label_name, unbroken
from headbook.study.gaps import Lack
from headbook.study.sentencedata import HeadName
from headbook.terms import HEAD_RULES, RULES, View

TOP = "top 1 %"
REPEATING = 10  # heads that the list of repetitions shows
CAPTION = unbroken(
    "All heads of a layer, 95 % intervals; distance, lift and odds: top 1 % of pairs."
)
COLUMNS = {
    "similarity": (SIMILARITY, "all"),
    "rows": (ROWS, "all"),
    "centred, neighbours": (CENTRED, "1"),
    "distance of similar tokens": (DISTANCE, TOP),
    "repetition lift": (REPETITION, TOP),
    "same-sentence odds": (PREFERENCE, TOP),
}
ASKED = {Lack.OUTPUTS, Lack.PASSAGES, SEGMENTS}  # what the page tells the lack of


@dataclass(frozen=True)
class ContextSection(StackSection):
    """One kind of attention.

    Attributes:
        summary: what the numbers say, in sentences.
        figures: curves over layers, with what they show.
        tables: layers by view.
        repeating: heads with the highest lift, chosen on one half of the sentences, or None.
        anchors: anchor tokens by layer; None where they were not counted.
        anchor_heads: heads with theirs.
        segments: how well rules find the ends of sentences; None without passages.
    """

    summary: tuple[str, ...]
    figures: tuple[Figure, ...]
    tables: tuple[tuple[str, Table], ...]
    repeating: Table | None
    anchors: Table | None
    anchor_heads: Table | None
    segments: Table | None


@dataclass(frozen=True, kw_only=True)
class ContextPage(Page):
    """What heads write, in all stacks.

    Attributes:
        sections: by stack; none where values are not available.
        remarks: what is missing, and why.
    """

    template: ClassVar[str] = "context.html"
    sections: tuple[ContextSection, ...]
    remarks: tuple[str, ...]


def _there(results: Mapping[str, StackResults]) -> bool:
    """Whether there are its first metrics, which the others are read against."""
    return any({SIMILARITY, ROWS} <= r.by_id.keys() for r in results.values())


@across("context.html", _there)
def context_page(results: Mapping[str, StackResults]) -> ContextPage:
    """The page of what heads write, and of sentence ends."""
    manifest = study_of(results).manifest
    return ContextPage(
        path="context.html",
        title=ANALYSES["context.html"],
        description=f"Which tokens receive nearly the same output from the heads of "
        f"{manifest.model.name}: distance, repeated tokens, anchors and sentence ends.",
        sections=tuple(_section(r) for r in results.values() if _has_any(r)),
        remarks=tuple(gap_text(gap) for gap in manifest.gaps if gap.key in ASKED),
    )


def _has_any(results: StackResults) -> bool:
    return any(results.has(name, View.RAW, label) for name, label in COLUMNS.values())


def _section(results: StackResults) -> ContextSection:
    stack = results.stack
    return ContextSection(
        stack=stack.name,
        summary=tuple(summary(results)),
        figures=tuple(_figures(results)),
        tables=tuple(_tables(results)),
        repeating=_table(("Head", "lift", "distance of similar tokens"), _repeating(results)),
        anchors=anchors_by_layer(results),
        anchor_heads=anchors_by_head(results),
        segments=_table(("Rule", "F1", "Pk", "WindowDiff"), _segments(results)),
    )


def _figures(results: StackResults) -> Iterator[Figure]:
    thresholds = [Line(label_name(label), DISTANCE, label) for label in metric(DISTANCE).labels]
    odds = [Line(label_name(label), PREFERENCE, label) for label in metric(PREFERENCE).labels]
    alike = [Line("head outputs", SIMILARITY, "all"), Line("attention rows", ROWS, "all")]
    ends = [Line(label_name(label), ENDS, label) for label in metric(ENDS).labels]
    asked = (
        ("drift", "distance over that of all pairs", thresholds,
         "Distance of tokens with nearly the same head output, over that of all pairs, by layer"),
        ("alike", "mean cosine", alike,
         "Mean similarity of all pairs of tokens by layer: of head outputs and of attention rows"),
        ("odds", "odds ratio", odds,
         "Odds that similar tokens are of one sentence, over those of other pairs of the same "
         "distance, by layer"),
        ("ends", "share of attention", ends,
         "Attention to separators and to ., ! and ? by layer, of tokens that see one; also "
         "value-weighted (by norm)"),
    )  # fmt: skip
    for name, title, lines, what in asked:
        figure = curve(results, f"context-{results.stack.name}-{name}", what, title, lines)
        if figure is not None:
            yield figure


def _table(columns: tuple[str, ...], rows: Iterator[Row]) -> Table | None:
    """A table; None without rows."""
    made = tuple(rows)
    return Table(columns, made) if made else None


def _tables(results: StackResults) -> Iterator[tuple[str, Table]]:
    for view in (View.RAW, View.NOSINK):
        columns = [
            (metric_link(name, title), results.layers(name, view, label), metric(name))
            for title, (name, label) in COLUMNS.items()
            if results.has(name, view, label)
        ]
        if columns:
            yield VIEWS[view], layer_table(results.stack.attention_layers, columns, CAPTION)


def _repeating(results: StackResults) -> Iterator[Row]:
    """The heads with the highest lift on one half, with their numbers on the other."""
    if REPETITION not in results.by_id:
        return
    chosen = results.half(CHOICE, REPETITION, View.RAW, TOP)
    for layer, head in descending(chosen.trusted)[:REPEATING]:
        name = HeadName(results.stack.name, layer, head)
        lift = results.half(REPORT, REPETITION, View.RAW, TOP).at(layer, head)
        cells = Cell.of(lift, metric(REPETITION)), _distance(results, layer, head)
        yield Row(head_link(name), cells)


def _distance(results: StackResults, layer: int, head: int) -> Cell:
    there = DISTANCE in results.by_id
    estimate = results.heads(DISTANCE, View.RAW, TOP).at(layer, head) if there else NO_ESTIMATE
    return Cell.of(estimate, metric(DISTANCE))


def _segments(results: StackResults) -> Iterator[Row]:
    if not results.has(SEGMENTS, View.RAW, "f1:even"):
        return
    first = results.stack.attention_layers[0]
    for rule in RULES:
        own = rule in HEAD_RULES
        for layer in results.stack.attention_layers if own else (first,):
            name = f"{rule}, layer {layer}" if own else f"{rule} (no model)"
            yield Row(
                name,
                tuple(
                    Cell.of(
                        results.layers(SEGMENTS, View.RAW, f"{measure}:{rule}").at(layer),
                        metric(SEGMENTS),
                    )
                    for measure in MEASURES
                ),
            )
