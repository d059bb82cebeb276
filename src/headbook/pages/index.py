"""The overview: atlas, who does what, curves over layers, findings, facts of the run."""

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from typing import ClassVar

import numpy as np

from headbook.analysis.accumulators import Estimates
from headbook.charts.drawing import Drawing
from headbook.charts.layers import Curve, layer_lines
from headbook.metrics import ids
from headbook.pages.metric import MetricPage
from headbook.pages.parts.atlas import Atlas, atlas, many_heads
from headbook.pages.parts.baselines import ShareWithBaseline, share_with_baseline
from headbook.pages.parts.grid import Grids, grids
from headbook.pages.parts.head_card import FirstCard, notable
from headbook.pages.parts.page import Page, coverage, input_rows
from headbook.report.findings import Finding, findings_of
from headbook.report.findings.ablation import ablation_summary
from headbook.report.findings.finding import Parts, choose_head, uniform_estimate
from headbook.report.findings.overview import overview_lead
from headbook.report.relation_tests import tests_of_stack
from headbook.report.relations import best_head_of_relation, relation_words
from headbook.report.results import StackResults, study_of
from headbook.report.roles import sink_words
from headbook.report.wording import (
    STACKS,
    count_text,
    number_word,
    p_family_wise_text,
    percent,
    rule_phrase,
)
from headbook.schema import AttentionStack, EmbeddingSpace, ResidualPoint, Side, SinkView
from headbook.study.manifest import Manifest

# Words, metric and label; the sink's name is put in.
ASKED = (
    ("attends to the previous token", ids.ATTENTION_TO, "previous"),
    ("attends to the next token", ids.ATTENTION_TO, "next"),
    ("attends to the token itself", ids.ATTENTION_TO, "self"),
    ("attends to other occurrences of the token", ids.ATTENTION_TO, "same_token"),
    ("attends to punctuation", ids.ATTENTION_TO, "punctuation"),
    ("attends to {sink}", ids.SINK_SHARE, ""),
    ("continues repeated sequences (induction)", ids.INDUCTION_SCORE, ""),
    ("attends to a token's earlier occurrence (duplicates)", ids.DUPLICATE_SCORE, ""),
    ("attends to the rarest word", ids.RARE_WORD_FOCUS, ""),
)
MOST_RELATIONS = 8


def functions(results: StackResults) -> tuple[ShareWithBaseline, ...]:
    """The functions of one stack, supported ones first: relations, then the rest."""
    found = [*_relations(results), *_shares(results)]
    return tuple(sorted(found, key=lambda each: not each.supported))


def _relations(results: StackResults) -> Iterator[ShareWithBaseline]:
    """Relations and directions by margin over the best surface rule on the choice half."""
    tests = results.cached(tests_of_stack)
    if tests is None:
        return
    order = np.argsort(-tests.selection_scores.margin.value, kind="stable")
    for n in order[:MOST_RELATIONS]:
        p, rule = float(tests.p[n]), rule_phrase(tests.rule[n])
        value, other = tests.accuracy.at(n), float(tests.at_rule.value[n])
        yield share_with_baseline(
            relation_words(tests.labels[n]),
            f"best surface rule ({rule}): {percent(other)}, "
            + ("not tested" if np.isnan(p) else p_family_wise_text(p)),
            value,
            other,
            behind=best_head_of_relation(tests, int(n), results.stack.name),
            supported=bool(tests.claimed[n]),
        )


def _shares(results: StackResults) -> Iterator[ShareWithBaseline]:
    """Shares of attention against uniform attention, head chosen on the other half."""
    for text, metric, label in ASKED:
        known = results.by_id.get(metric)
        if known is None:
            continue
        view = results.view(known, label)
        best = choose_head(results, metric, view, label)
        if best is None:
            continue
        even = uniform_estimate(results, metric, view, label, best.head.layer).value
        yield share_with_baseline(
            text.format(sink=sink_words(results)),
            f"uniform attention: {percent(float(even))}{best.tied}",
            best.value,
            float(even),
            behind=best.head,
            supported=bool(best.value.low > even),
        )


CLASSES = {"content": "content words", "function": "function words", "special": "special tokens",
           "all": "all tokens"}  # fmt: skip
DRAWN = (ids.SINK_SHARE, ids.RELATIVE_ENTROPY, ids.COSINE_TO_INPUT, ids.VOCABULARY_RANK)
MOST_LINES = 3
MAX_INTERVAL = 1.25
APART = 0.12  # of the axis, between two of its numbers


@dataclass(frozen=True)
class LayerCurve:
    """One of the curves.

    Attributes:
        title: what is drawn.
        picture: the curve.
        metric: whose page has more.
        files: name of the metric's own chart of layers, which shows other lines; empty without
            one.
    """

    title: str
    picture: Drawing
    metric: str
    files: str


def layer_curves(results: StackResults, files: Collection[str]) -> tuple[LayerCurve, ...]:
    """Those that a stack has numbers for.

    Args:
        files: names of the charts that there are files of.
    """
    return tuple(
        LayerCurve(title, picture, metric, name if name in files else "")
        for metric, title, picture in (*_attention(results), *_cosine(results), *_rank(results))
        for name in (f"{metric}-{results.stack.name}-layers",)
    )


Made = tuple[str, str, Drawing]


def _attention(results: StackResults) -> Iterator[Made]:
    """What the sink receives and contributes; without it, how even attention is."""
    what = sink_words(results)
    if results.has_value(ids.SINK_SHARE, SinkView.RAW):
        lines = [
            _of(results, "attention", results.layers(ids.SINK_SHARE, SinkView.RAW)),
            *(
                [_of(results, "output norm", results.layers(ids.SINK_NORM_SHARE, SinkView.RAW))]
                if results.has_value(ids.SINK_NORM_SHARE, SinkView.RAW)
                else []
            ),
            _of(results, "uniform", results.uniform(ids.SINK_SHARE, SinkView.RAW), dashed=True),
        ]
        caption = (
            f"Share of attention to {what}, and their share of the value-weighted norm, all heads "
            "of a layer together"
        )
        yield (
            ids.SINK_SHARE,
            f"Attention to {what}",
            _drawn(results, "sink", caption, lines, share=True),
        )
    elif results.has_value(ids.RELATIVE_ENTROPY, SinkView.RAW):
        lines = [
            _of(results, "attention maps", results.layers(ids.RELATIVE_ENTROPY, SinkView.RAW), 2)
        ]
        caption = "Normalised entropy of attention; 1 is uniform attention"
        yield ids.RELATIVE_ENTROPY, "Normalised entropy", _drawn(results, "entropy", caption, lines)


def _cosine(results: StackResults) -> Iterator[Made]:
    lines = [*_by_class(results, ids.COSINE_TO_INPUT, None)]
    if lines:
        caption = "Cosine between a token's state after each layer and its input embedding"
        yield (
            ids.COSINE_TO_INPUT,
            "Cosine to the input embedding",
            _drawn(results, "cosine", caption, lines),
        )


def _rank(results: StackResults) -> Iterator[Made]:
    for space in (EmbeddingSpace.POSITIONAL, EmbeddingSpace.RAW):
        lines = [*_by_class(results, ids.VOCABULARY_RANK, space)]
        if lines:
            caption = (
                "Number of vocabulary tokens nearer to a state than its own input token, mean of "
                "log10(1 + rank) after each layer; 0: still the nearest"
            )
            yield (
                ids.VOCABULARY_RANK,
                "Vocabulary rank, log10(1 + rank)",
                _drawn(results, "rank", caption, lines),
            )
            return


def _by_class(results: StackResults, metric: str, space: EmbeddingSpace | None) -> Iterator[Curve]:
    """Classes of tokens; all together where no class is known."""
    found = 0
    for label, name in CLASSES.items():
        numbers = results.tokens(metric, ResidualPoint.POST, space, label)
        if numbers is not None and (label != "all" or not found) and found < MOST_LINES:
            found += 1
            yield _of(results, name, numbers, 2)


def _of(
    results: StackResults, name: str, numbers: Estimates, digits: int = -1, *, dashed: bool = False
) -> Curve:
    layers = [*results.stack.attention_layers]
    value, low, high = (part[layers] for part in numbers[:3])
    if dashed:
        low = high = np.full(len(layers), math.nan)
    texts = [
        percent(each) if digits < 0 else f"{each:.{digits}f}".replace("-", "−")
        for each in map(float, value)
    ]
    return Curve(name, value, low, high, texts, dashed)


def _drawn(
    results: StackResults, name: str, caption: str, lines: Sequence[Curve], *, share: bool = False
) -> Drawing:
    stack = results.stack
    ends = _ends(lines)
    marks = (ends[0], 0.0, ends[1] / 2, ends[1])
    ticks = [
        (mark, f"{100 * mark:.0f}\u202f%" if share else f"{mark:g}".replace("-", "−"))
        for mark in dict.fromkeys(marks)
        if not mark or abs(mark) >= APART * (ends[1] - ends[0])
    ]
    caption_text = f"{caption}; {STACKS[stack.name]}. Bands: 95 % intervals, sentences as clusters."
    return layer_lines(
        f"overview-{name}-{stack.name}",
        caption_text,
        lines,
        layers=stack.attention_layers,
        ends=ends,
        ticks=ticks,
    )


def _ends(lines: Sequence[Curve]) -> tuple[float, float]:
    """Round ends of the axis that hold 0 and all values.

    Intervals count as far as `MAX_INTERVAL` times the largest value: one wide interval must not
    flatten all lines. What lies beyond is cut.
    """
    values, bands = ([part[~np.isnan(part)] for part in parts] for parts in (
        [line.values for line in lines], [end for line in lines for end in (line.low, line.high)]
    ))  # fmt: skip
    most = MAX_INTERVAL * max((float(abs(value).max(initial=0)) for value in values), default=0.0)
    known = np.concatenate([*values, *(band.clip(-most, most) for band in bands)])
    low, high = float(known.min(initial=0)), float(known.max(initial=0))
    return (-_round(-low) if low < 0 else 0.0), (_round(high) if high > 0 else 1.0)


def _round(size: float) -> float:
    """The least round number that is not smaller."""
    ten = 10.0 ** math.floor(math.log10(size))
    return next(step * ten for step in (1, 2, 4, 6, 8, 10) if step * ten >= size * (1 - 1e-9))


CARDS = 6  # findings that stand there at once
ESTIMATE = re.compile(
    r"(?:[<>]\u202f)?[−+]?\d[\d,.]*(?:[\u202f\u00a0]%| tokens| points|\u00a0×\u202f10⁻³)?"
    r"(?=(?: of the loss)? \[)"
)
CHANGE = re.compile(rf" from ({ESTIMATE.pattern}).* to ({ESTIMATE.pattern})")


@dataclass(frozen=True)
class FindingGroup:
    """What was found in one stack, or of the importance of heads."""

    title: str
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class FindingCard:
    """A finding with its first estimate, or a change, in large letters; empty without one."""

    estimate: str
    finding: Finding


@dataclass(frozen=True)
class StackPart:
    """What a section shows of one stack."""

    title: str
    functions: tuple[ShareWithBaseline, ...] = ()
    curves: tuple[LayerCurve, ...] = ()


@dataclass(frozen=True, kw_only=True)
class OverviewPage(Page):
    """The first page.

    Attributes:
        lead: what the model's heads do, words and links.
        atlases: all heads as tiles, by stack.
        inspected: the head that the card beside the atlas begins with; None without heads.
        stacks: who does what and curves over layers, by stack.
        cards: findings that stand there at once.
        findings: all of them, by stack; then those of the importance of heads.
        grids: all heads under one metric.
        linked: whether the cells of these are links.
        facts: what was run, as terms and values.
        notes: the author's own words, in Markdown.
        failed: the self-checks that failed.
        alarms: what a reader must know before trusting the numbers.
        warnings: what was cut or left out.
        absent: what is missing; methods say why.
        sentences: whether there are pages of sentences.
        learned: whether a stack's softmax has a learned sink.
        annotators: who told words, tags and trees.
        counted: number of sentences, in words.
        has_ablation: whether heads were replaced to see what the model loses.
    """

    template: ClassVar[str] = "index.html"
    scripts = ("index",)
    contents = False
    lead: Parts
    atlases: tuple[Atlas, ...]
    inspected: FirstCard | None
    stacks: tuple[StackPart, ...]
    cards: tuple[FindingCard, ...]
    findings: tuple[FindingGroup, ...]
    grids: Grids
    linked: bool
    facts: tuple[tuple[str, str], ...]
    notes: str
    failed: tuple[str, ...]
    alarms: tuple[str, ...]
    warnings: tuple[str, ...]
    absent: tuple[str, ...]
    sentences: bool
    annotators: str
    counted: str
    learned: bool
    has_ablation: bool


def overview_page(
    results: Mapping[str, StackResults], metric_pages: Sequence[MetricPage]
) -> OverviewPage:
    """The first page of a study's site."""
    study = study_of(results)
    manifest = study.manifest
    finding_groups = [
        FindingGroup(STACKS[name], tuple(findings_of(r, r.cached(tests_of_stack))))
        for name, r in results.items()
    ]
    finding_groups.append(FindingGroup("importance of heads", tuple(ablation_summary(study))))
    measured = {name: r for name, r in results.items() if r.metrics}
    drawn = {name for p in metric_pages for s in p.sections for name in s.files}
    return OverviewPage(
        path="index.html",
        title=manifest.title,
        description=f"Attention heads and token paths of {manifest.model.name} on "
        f"{coverage(manifest)}: numbers, charts and exemplars.",
        lead=(overview_lead(measured) if measured else ()) or (_coverage(manifest),),
        atlases=tuple(atlas(r) for r in results.values()),
        inspected=notable(results),
        stacks=tuple(
            StackPart(STACKS[name], functions(r) if r.metrics else (), layer_curves(r, drawn))
            for name, r in results.items()
        ),
        cards=tuple(_cards(finding_groups)),
        findings=tuple(group for group in finding_groups if group.findings),
        grids=grids(measured.values()),
        linked=not any(map(many_heads, results.values())),
        facts=tuple(_facts(manifest)),
        notes=manifest.notes,
        alarms=tuple(_alarms(manifest)),
        failed=manifest.failed,
        warnings=tuple(_warnings(manifest)),
        absent=tuple(dict.fromkeys(gap.what for gap in manifest.gaps)),
        sentences=bool(study.sentence_data.listed),
        annotators="; ".join(dict.fromkeys(manifest.annotators.values())),
        counted=coverage(manifest),
        learned=any(stack.learned_sink for stack in manifest.stacks),
        has_ablation=study.corpus_sums.ablation is not None,
    )


def _cards(groups: Sequence[FindingGroup]) -> Iterator[FindingCard]:
    """The first findings of each group in turn."""
    turns = zip_longest(*(group.findings for group in groups))
    every = (each for each in chain.from_iterable(turns) if each is not None)
    for each in islice(every, CARDS):
        change, first = CHANGE.search(each.text), ESTIMATE.search(each.text)
        estimates = change.groups() if change else (first[0],) if first else ()
        yield FindingCard(" → ".join(estimates), each)


def _coverage(manifest: Manifest) -> str:
    """What the page is about, where no number tells more."""
    return f"Attention heads of {manifest.model.name} on {coverage(manifest)}."


def _facts(manifest: Manifest) -> Iterator[tuple[str, str]]:
    model = manifest.model
    yield "Model", f"{model.name} · {model.architecture} · {model.kind}"
    for stack in manifest.stacks:
        shape = f"{len(stack.attention_layers)} layers × {stack.n_heads} heads"
        shared = f", {stack.n_key_heads} key heads" if stack.n_key_heads < stack.n_heads else ""
        yield STACKS[stack.name].capitalize(), shape + shared
        if stack.learned_sink:
            yield "Learned sink", learned_sink(manifest, stack)
    yield "Parameters", f"{model.parameters:,} ({model.dtype})"
    yield from input_rows(manifest)
    if manifest.options.get("pack"):
        joined = count_text(manifest.counts["sentences"], "passage")
        most = f"at most {manifest.options['pack']:,} tokens each"
        yield "Passages", f"{joined}, {most}; where pages say sentences, they mean these"
    for side in Side:
        tokens = manifest.count(side, "tokens")
        if tokens:
            special = manifest.count(side, "special")
            name = "Tokens" if side is Side.SOURCE else "Target tokens"
            yield name, f"{tokens:,}, of which {special:,} special"
    yield (
        "Annotation",
        "; ".join(
            name if len(manifest.annotators) == 1 else f"{side}: {name}"
            for side, name in manifest.annotators.items()
        ),
    )
    yield "Made", f"{manifest.created} with Headbook {manifest.headbook}".strip()


def learned_sink(manifest: Manifest, stack: AttentionStack) -> str:
    """What goes to a sink that is no token, in words."""
    return (
        f"{percent(manifest.learned_share(stack))} of the mass goes to the learned sink: a logit "
        "of the softmax that stands for no token. It counts as sink; the weights of a query add "
        "up to the rest"
    )


def _warnings(manifest: Manifest) -> Iterator[str]:
    model = manifest.model
    for side in Side:
        cut = manifest.count(side, "cut_sentences")
        if cut:
            lost, left_out = manifest.count(side, "cut_tokens"), manifest.count(side, "left_out")
            more = f" and {count_text(left_out, 'character')} after them" if left_out else ""
            yield (
                f"{count_text(cut, f'{side} text')} longer than {model.limit:,} tokens: cut at the "
                f"end, {count_text(lost, 'token')}{more} lost. Their pages say so."
            )
    unread = manifest.counts.get("unread_targets", 0)
    if unread:
        yield (
            f"{count_text(unread, 'target')} of source-target pairs not read: {model.name} takes "
            "one "
            "text. They are kept as metadata."
        )
    written = manifest.count(Side.TARGET, "generated")
    if written:
        yield f"{count_text(written, 'target text')} written by the model itself (greedy decoding)."
    if model.bits:
        yield (
            f"Weights are dequantised from {number_word(model.bits)} bits ({model.stored}): "
            "numbers "
            "are those of the quantised model, not of the original."
        )
    if model.unexpected:
        yield f"The checkpoint holds weights that were not used: {_some(model.unexpected)}."


def _alarms(manifest: Manifest) -> Iterator[str]:
    """What readers must know before they trust the numbers; most studies have nothing of it."""
    model = manifest.model
    if model.missing:
        yield (
            "The checkpoint lacks weights that this architecture has; they are random: "
            f"{_some(model.missing)}."
        )
    yield from manifest.lacking


def _some(names: Sequence[str]) -> str:
    listed = ", ".join(names[:8])
    return listed if len(names) <= 8 else f"{listed} and {len(names) - 8:,} more"
