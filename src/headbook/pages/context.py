"""Similarity of head outputs, anchors, sentence ends."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import pandas as pd

from headbook.analysis.accumulators import HELD_OUT, NO_ESTIMATE, SELECTION
from headbook.analysis.arrays import divide
from headbook.charts import Figure, layer_curve
from headbook.metrics.outputs.segmentation import MEASURES
from headbook.pages.parts.page import Page, StackSection, gap_text
from headbook.pages.parts.table import (
    DASH,
    MarkedText,
    NumberCell,
    PageTable,
    Row,
    WordsCell,
    layer_table,
    words_cell,
)
from headbook.report.findings.finding import head_link, head_metric, metric_link
from headbook.report.findings.states import (
    ANCHOR_COLUMNS,
    CENTRED,
    DISTANCE,
    ENDS,
    PREFERENCE,
    REPETITION,
    ROWS,
    SEGMENTS,
    SIMILARITY,
    anchor_layers,
    summary,
)
from headbook.report.results import StackResults, heads_by_value, study_of
from headbook.report.wording import MISSING, STACKS, VIEWS, is_share, label_name, number, unbroken
from headbook.schema import HEAD_RULES, SEGMENTATION_RULES, SinkView
from headbook.study.manifest import MissingPart
from headbook.study.sentence_data import HeadName, heads_of
from headbook.study.token_sums import TRUE_ORDER, Anchors, TopAnchor

MOST_HEADS = 150  # that are listed


TITLES = (
    "cosine ≥ 0.9, all keys",
    "cosine ≥ 0.9, sink masked",
    unbroken("top 1 %, all keys"),
    unbroken("top 1 %, sink masked"),
)


def anchors_by_layer(results: StackResults) -> PageTable | None:
    """The numbers of anchors; None where none were counted."""
    layers = results.cached(anchor_layers)
    rows = (
        Row(str(layer), tuple(_number(results.stack.n_heads, *each) for each in counts))
        for layer, counts in layers.items()
    )
    caption = "Different anchors in a layer."
    return PageTable(("Layer", *TITLES), tuple(rows), caption) if layers else None


def _number(n_heads: int, own: int, mixed: int, heads: int) -> WordsCell:
    some = f" ({heads} heads)" if heads < n_heads else ""
    counted = (f"{own} ", MarkedText(f"shuffled {mixed}{some}", "small")) if heads else (MISSING,)
    return words_cell(*counted, style="number")


def anchors_by_head(results: StackResults) -> PageTable | None:
    """Heads with their anchors, layer by layer: those whose last one has the largest share."""
    anchors = results.study.corpus_sums.anchors.get(results.stack.name)
    if anchors is None:
        return None
    best = [anchors.best(column, TRUE_ORDER) for column in ANCHOR_COLUMNS]
    share = np.nan_to_num(divide(best[-1].ends, best[-1].total))
    heads = heads_of(results.stack)
    kept = sorted(heads, key=lambda name: -share[name.layer, name.head])[:MOST_HEADS]
    which = "; heads with the largest shares" if len(kept) == MOST_HEADS else ""
    return PageTable(
        ("Head", *TITLES),
        tuple(
            Row(head_link(name), tuple(_anchor(anchors, each, name[1:]) for each in best))
            for name in sorted(kept)
        ),
        f"With share of all ends of such pairs{which}.",
    )


def _anchor(anchors: Anchors, best: TopAnchor, cell: tuple[int, int]) -> WordsCell:
    if not best.total[cell]:
        return DASH
    share = number(best.ends[cell] / best.total[cell], share=True)
    return words_cell(
        MarkedText(anchors.names[str(best.token[cell])], "bdi"), " ", MarkedText(share, "small")
    )


class CurveSpec(NamedTuple):
    """One line of a curve: its name, the metric and the label."""

    name: str
    metric: str
    label: str


def curve(
    results: StackResults, name: str, what: str, title: str, lines: Sequence[CurveSpec]
) -> Figure | None:
    """Numbers of layers in all views that the metrics have; None where there are none."""
    lines = [line for line in lines if line.metric in results.by_id]
    frames = [
        _rows(results, line, view)
        for line in lines
        for view in head_metric(line.metric).views
        if results.has_value(line.metric, view, line.label)
    ]
    if not frames:
        return None
    rows = pd.concat(frames, ignore_index=True)
    view = str(rows["view"][0])
    sentences = _sentences(results, lines, SinkView(view))
    caption = (
        f"{what}. All heads of a layer, 95 % intervals clustered by sentence; "
        f"{VIEWS[SinkView(view)]}, "
        f"{STACKS[results.stack.name]}{results.sample_note(sentences, ', on')}."
    )
    share = all(is_share(head_metric(line.metric)) for line in lines)
    return layer_curve(name, caption, rows, title=title, show={"view": view}, share=share)


def _sentences(results: StackResults, lines: Sequence[CurveSpec], view: SinkView) -> int:
    """How many sentences the shown lines rest on, at most."""
    there = [line for line in lines if results.has_value(line.metric, view, line.label)]
    each = [results.layers(line.metric, view, line.label).sentences for line in there]
    return max(int(sentences.max()) for sentences in each)


def _rows(results: StackResults, line: CurveSpec, view: SinkView) -> pd.DataFrame:
    numbers = results.layers(line.metric, view, line.label)
    layers = np.flatnonzero(~np.isnan(numbers.value))
    parts = {n: getattr(numbers, n)[layers] for n in ("value", "low", "high")}
    return pd.DataFrame({"layer": layers, **parts}).assign(series=line.name, view=str(view))


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
ASKED = {MissingPart.OUTPUTS, MissingPart.PASSAGES, SEGMENTS}  # what the page tells the lack of


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
    tables: tuple[tuple[str, PageTable], ...]
    repeating: PageTable | None
    anchors: PageTable | None
    anchor_heads: PageTable | None
    segments: PageTable | None


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


def has_context(results: Mapping[str, StackResults]) -> bool:
    """Return whether a study has similarities of head outputs and of attention rows."""
    return any({SIMILARITY, ROWS} <= r.by_id.keys() for r in results.values())


def context_page(results: Mapping[str, StackResults]) -> ContextPage:
    """The page of what heads write, and of sentence ends."""
    manifest = study_of(results).manifest
    return ContextPage(
        path="context.html",
        title="Head outputs and sentence ends",
        description=f"Which tokens receive nearly the same output from the heads of "
        f"{manifest.model.name}: distance, repeated tokens, anchors and sentence ends.",
        sections=tuple(_section(r) for r in results.values() if _has_any(r)),
        remarks=tuple(gap_text(gap) for gap in manifest.gaps if gap.key in ASKED),
    )


def _has_any(results: StackResults) -> bool:
    return any(results.has_value(name, SinkView.RAW, label) for name, label in COLUMNS.values())


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
    thresholds = [
        CurveSpec(label_name(label), DISTANCE, label) for label in head_metric(DISTANCE).labels
    ]
    odds = [
        CurveSpec(label_name(label), PREFERENCE, label) for label in head_metric(PREFERENCE).labels
    ]
    alike = [CurveSpec("head outputs", SIMILARITY, "all"), CurveSpec("attention rows", ROWS, "all")]
    ends = [CurveSpec(label_name(label), ENDS, label) for label in head_metric(ENDS).labels]
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


def _table(columns: tuple[str, ...], rows: Iterator[Row]) -> PageTable | None:
    """A table; None without rows."""
    made = tuple(rows)
    return PageTable(columns, made) if made else None


def _tables(results: StackResults) -> Iterator[tuple[str, PageTable]]:
    for view in (SinkView.RAW, SinkView.NOSINK):
        columns = [
            (metric_link(name, title), results.layers(name, view, label), head_metric(name))
            for title, (name, label) in COLUMNS.items()
            if results.has_value(name, view, label)
        ]
        if columns:
            yield VIEWS[view], layer_table(results.stack.attention_layers, columns, CAPTION)


def _repeating(results: StackResults) -> Iterator[Row]:
    """The heads with the highest lift on one half, with their numbers on the other."""
    if REPETITION not in results.by_id:
        return
    chosen = results.split(SELECTION, REPETITION, SinkView.RAW, TOP)
    for layer, head in heads_by_value(chosen.trusted)[:REPEATING]:
        name = HeadName(results.stack.name, layer, head)
        lift = results.split(HELD_OUT, REPETITION, SinkView.RAW, TOP).at(layer, head)
        cells = NumberCell.of(lift, head_metric(REPETITION)), _distance(results, layer, head)
        yield Row(head_link(name), cells)


def _distance(results: StackResults, layer: int, head: int) -> NumberCell:
    there = DISTANCE in results.by_id
    estimate = results.heads(DISTANCE, SinkView.RAW, TOP).at(layer, head) if there else NO_ESTIMATE
    return NumberCell.of(estimate, head_metric(DISTANCE))


def _segments(results: StackResults) -> Iterator[Row]:
    if not results.has_value(SEGMENTS, SinkView.RAW, "f1:even"):
        return
    first = results.stack.attention_layers[0]
    for rule in SEGMENTATION_RULES:
        own = rule in HEAD_RULES
        for layer in results.stack.attention_layers if own else (first,):
            name = f"{rule}, layer {layer}" if own else f"{rule} (no model)"
            yield Row(
                name,
                tuple(
                    NumberCell.of(
                        results.layers(SEGMENTS, SinkView.RAW, f"{measure}:{rule}").at(layer),
                        head_metric(SEGMENTS),
                    )
                    for measure in MEASURES
                ),
            )
