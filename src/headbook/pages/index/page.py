"""The first page: the atlas of all heads, who does what, curves, findings, and one metric."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from typing import ClassVar

from headbook.pages.index.functions import functions
from headbook.pages.index.layercurves import LayerCurve, layer_curves
from headbook.pages.index.lead import lead
from headbook.pages.metric.page import MetricPage
from headbook.pages.parts.coverage import coverage, input_rows
from headbook.pages.parts.grid import Grids, grids
from headbook.pages.parts.measured import Measured
from headbook.pages.parts.page import Page
from headbook.pages.widgets.atlas import Atlas, atlas, many_heads
from headbook.pages.widgets.inspector import Inspected, notable
from headbook.report.findings import Finding, find
from headbook.report.findings.finding import Parts
from headbook.report.findings.importance import needed
from headbook.report.numbers.inference import tests_of
from headbook.report.numbers.results import StackResults, study_of
from headbook.report.wording import STACKS, counted, percent, small
from headbook.study.manifest import Manifest
from headbook.terms import Side, Stack

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
    functions: tuple[Measured, ...] = ()
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
        removed: whether heads were replaced to see what the model loses.
    """

    template: ClassVar[str] = "index.html"
    lead: Parts
    atlases: tuple[Atlas, ...]
    inspected: Inspected | None
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
    removed: bool


def overview_page(
    results: Mapping[str, StackResults], metric_pages: Sequence[MetricPage]
) -> OverviewPage:
    """The first page of a study's site."""
    study = study_of(results)
    manifest = study.manifest
    finding_groups = [
        FindingGroup(STACKS[name], tuple(find(r, r.once(tests_of)))) for name, r in results.items()
    ]
    finding_groups.append(FindingGroup("importance of heads", tuple(needed(study))))
    measured = {name: r for name, r in results.items() if r.metrics}
    drawn = {f.name for p in metric_pages for s in p.sections for f in s.figures}
    return OverviewPage(
        path="index.html",
        title=manifest.title,
        description=f"Attention heads and token paths of {manifest.model.name} on "
        f"{coverage(manifest)}: numbers, charts and exemplars.",
        lead=(lead(measured) if measured else ()) or (_coverage(manifest),),
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
        removed=study.corpus_sums.removals is not None,
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
        joined = counted(manifest.counts["sentences"], "passage")
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


def learned_sink(manifest: Manifest, stack: Stack) -> str:
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
            more = f" and {counted(left_out, 'character')} after them" if left_out else ""
            yield (
                f"{counted(cut, f'{side} text')} longer than {model.limit:,} tokens: cut at the "
                f"end, {counted(lost, 'token')}{more} lost. Their pages say so."
            )
    unread = manifest.counts.get("unread_targets", 0)
    if unread:
        yield (
            f"{counted(unread, 'target')} of source-target pairs not read: {model.name} takes one "
            "text. They are kept as metadata."
        )
    written = manifest.count(Side.TARGET, "generated")
    if written:
        yield f"{counted(written, 'target text')} written by the model itself (greedy decoding)."
    if model.bits:
        yield (
            f"Weights are dequantised from {small(model.bits)} bits ({model.stored}): numbers "
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
