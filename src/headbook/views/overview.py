"""The first page: what was run, what was found, and the way to everything else."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from headbook.charts import Figure
from headbook.findings import Finding, find
from headbook.numbers.results import StackResults
from headbook.stored.manifest import Manifest
from headbook.terms import Side, Stack
from headbook.views.grid import FIRST, Grid, grid
from headbook.views.metric import MetricPage
from headbook.views.page import Page, gap_texts
from headbook.views.ranked import tests_of
from headbook.wording import STACKS, counted, percent

CURVES = (*FIRST, "cosine_to_input", "vocabulary_rank")
MOST_CURVES = 8  # on the page; several stacks share them


@dataclass(frozen=True)
class FindingGroup:
    """What was found in one stack."""

    title: str
    findings: tuple[Finding, ...]


@dataclass(frozen=True, kw_only=True)
class OverviewPage(Page):
    """The first page.

    Attributes:
        facts: what was run, as terms and values.
        notes: the author's own words, in Markdown.
        failed: the self-checks that failed.
        warnings: what a reader must know before trusting the numbers.
        findings: sentences computed from the numbers, by stack.
        grids: all heads, by stack.
        figures: curves over layers, by stack.
        sentences: whether there are pages of sentences.
        learned: whether a stack's softmax has a learned sink.
        left_out: what was left out to keep the site small; empty where nothing was.
    """

    template: ClassVar[str] = "index.html"
    facts: tuple[tuple[str, str], ...]
    notes: str
    failed: tuple[str, ...]
    warnings: tuple[str, ...]
    findings: tuple[FindingGroup, ...]
    grids: tuple[Grid, ...]
    figures: tuple[tuple[str, tuple[Figure, ...]], ...]
    sentences: bool
    learned: bool
    left_out: str


def overview_page(
    results: Mapping[str, StackResults], metric_pages: Sequence[MetricPage], left_out: str = ""
) -> OverviewPage:
    """The first page of a study's site."""
    study = next(iter(results.values())).study
    manifest = study.manifest
    found = [
        FindingGroup(STACKS[name], tuple(find(r, r.once(tests_of)))) for name, r in results.items()
    ]
    return OverviewPage(
        path="index.html",
        title=manifest.title,
        description=f"Attention heads and token paths of {manifest.model.name} on "
        f"{counted(manifest.counts['sentences'], 'sentence')}: numbers, charts and exemplars.",
        facts=tuple(_facts(manifest)),
        notes=manifest.notes,
        failed=manifest.failed,
        warnings=tuple(_warnings(manifest)),
        findings=tuple(group for group in found if group.findings),
        grids=tuple(r.once(grid) for r in results.values() if r.metrics),
        figures=tuple(_curves(results, metric_pages)),
        sentences=bool(study.portrait.listed),
        learned=any(stack.learned_sink for stack in manifest.stacks),
        left_out=left_out,
    )


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
    for file in manifest.inputs:
        yield (
            "Input",
            f"{file.name} · {counted(file.sentences, 'sentence')}"
            + (f" · {counted(file.blank, 'blank line')} skipped" if file.blank else ""),
        )
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
            lost = manifest.count(side, "cut_tokens")
            yield (
                f"{counted(cut, f'{side} text')} longer than {model.limit:,} tokens: cut at the "
                f"end, {counted(lost, 'token')} lost. Their pages say so."
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
    if model.missing:
        yield (
            "The checkpoint lacks weights that this architecture has; they are random: "
            f"{_some(model.missing)}."
        )
    if model.unexpected:
        yield f"The checkpoint holds weights that were not used: {_some(model.unexpected)}."
    for gap in gap_texts(manifest.gaps):
        yield f"Not available: {gap}."


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:8])
    return shown if len(names) <= 8 else f"{shown} and {len(names) - 8:,} more"


def _curves(
    results: Mapping[str, StackResults], pages: Sequence[MetricPage]
) -> Iterator[tuple[str, tuple[Figure, ...]]]:
    """The curves over layers that stand on the metrics' own pages."""
    by_metric = {page.metric: page for page in pages}
    for stack in results:
        title = STACKS[stack]
        sections = (
            section
            for name in CURVES[: MOST_CURVES // len(results)]
            if name in by_metric
            for section in by_metric[name].sections
            if section.title == title
        )
        figures = tuple(section.figures[-1] for section in sections)
        if figures:
            yield title, figures
