"""The page of methods: how numbers were made, what was checked, and figures of papers."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from headbook.metrics import all_metrics
from headbook.metrics.base import Metric
from headbook.pages.metric import is_measured
from headbook.pages.parts.blocks import Row as BlockRow
from headbook.pages.parts.blocks import Table, row
from headbook.pages.parts.page import TemplatePage, gap_texts
from headbook.pages.parts.table import PageTable, Row, words_cell
from headbook.report.answers.circuit_rules import why_no_circuits
from headbook.report.answers.text_notes import text_notes
from headbook.report.facts import thresholds
from headbook.report.facts.functions import FAMILY_NAMES, RULES, functions_of
from headbook.report.published import published_numbers
from headbook.report.results import StackResults, study_of
from headbook.report.sink import sink_tokens
from headbook.report.wording import SPACES, STACKS, VIEWS, capital, count_text, label_name
from headbook.results.formats import MISSING, percent
from headbook.results.sentence import metric_link, say
from headbook.schema import UNICODE_WORDS, EmbeddingSpace, Side, SinkView
from headbook.study.corpus_sums import MAX_HEADS_ALL_PAIRS
from headbook.study.manifest import Check, Manifest, Rounding
from headbook.study.merging import merge_gaps, repeated_text


@dataclass(frozen=True, kw_only=True)
class MethodsPage(TemplatePage):
    """The page on how the numbers were made.

    Attributes:
        model, run: facts as terms and values.
        checks: self-checks with their largest differences; ``passed``: whether all hold.
        checked_sentences: number of sentences of the self-checks.
        gaps: missing numbers with their reasons.
        not_measured: sentences that could not be measured, with reasons.
        fallbacks: numbers that were measured by another method than planned.
        texts: remarks on inputs, texts that were cut, and doubled and unknown tokens.
        merged: of how many studies the study was merged, and what that means; empty if of none.
        roundings: effect on ranks of a vocabulary product in lower precision.
        views: the three treatments of the sink, as names and explanations.
        metrics: all metrics with formula and source.
        unmeasured: number of these metrics that have no numbers in this study.
        with_page: ids of those that have.
        published: figures of papers beside values of the study; empty if the study has none.
        versions: versions of libraries.
        functions: rules that give heads their function, in their order.
        least: conditions of all rules.
        causal: whether some stack is causal.
        all_pairs: whether every pair of heads of some stack is compared.
        similar_pairs: whether only similar pairs of heads of some stack are compared.
    """

    template: ClassVar[str] = "methods.html"
    styles = ("plots",)
    model: tuple[tuple[str, str], ...]
    run: tuple[tuple[str, str], ...]
    checks: PageTable
    passed: bool
    checked_sentences: int
    gaps: tuple[str, ...]
    not_measured: tuple[str, ...]
    fallbacks: tuple[str, ...]
    texts: tuple[str, ...]
    merged: str
    roundings: tuple[str, ...]
    views: tuple[tuple[str, str], ...]
    metrics: tuple[Metric, ...]
    unmeasured: int
    with_page: frozenset[str]
    published: tuple[tuple[str, Table], ...]
    versions: tuple[tuple[str, str], ...]
    functions: Table
    least: tuple[tuple[str, str], ...]
    causal: bool
    all_pairs: bool
    similar_pairs: bool


KEYS = {
    SinkView.RAW: "weights as the model computes them",
    SinkView.NOSINK: "keys of the sink removed, other weights unchanged",
    SinkView.RENORM: "keys of the sink removed, rows divided by what remains, so that they sum "
    "to 1",
}
CHECKED = ("Identity", "where", "largest difference", "tolerance", "holds")
LISTED = 8  # sentences that are listed by number
DIFFERENCE = "Largest absolute difference, relative to the largest value compared."
RULE_COLUMNS = ("Function", "Sentence", "Family", "Least", "Why this value", "Heads here")
PUBLISHED = ("Figure", "published", "this study", "computed from", "in the source")


def methods_page(results: Mapping[str, StackResults], metrics: Sequence[Metric]) -> MethodsPage:
    """Return the page on how the numbers of a study were made.

    Args:
        results: results by stack.
        metrics: metrics that the page lists.
    """
    manifest = study_of(results).manifest
    amounts = [len(s.attention_layers) * s.n_heads for s in manifest.stacks]
    measured = frozenset(metric.id for metric in metrics if is_measured(results, metric))
    return MethodsPage(
        path="methods.html",
        title="Methods",
        description="Definitions, self-checks, model and versions behind every number.",
        model=tuple(_model(manifest)),
        run=tuple(
            (name.replace("_", " "), _option(v)) for name, v in sorted(manifest.options.items())
        ),
        checks=PageTable(CHECKED, tuple(map(_check, manifest.checks)), DIFFERENCE),
        passed=all(check.passed for check in manifest.checks),
        checked_sentences=manifest.checked_sentences,
        gaps=tuple(
            filter(
                None,
                (*gap_texts(manifest.gaps), why_no_circuits(results), *not_installed(manifest)),
            )
        ),
        not_measured=tuple(_not_measured(manifest)),
        fallbacks=manifest.fallbacks,
        texts=(
            *(text for file in manifest.inputs for text in file.messages()),
            *manifest.cut,
            *(note.text for note in text_notes(manifest)),
        ),
        merged=_merged(manifest),
        roundings=tuple(_rounding(rounding, manifest) for rounding in manifest.roundings),
        views=tuple((VIEWS[view], f"{text} (in files: {view})") for view, text in KEYS.items()),
        metrics=tuple(metrics),
        unmeasured=len(metrics) - len(measured),
        with_page=measured,
        published=tuple(published_tables(results)),
        versions=tuple(sorted(manifest.versions.items())),
        functions=_functions(results),
        least=tuple(_conditions()),
        causal=any(stack.causal for stack in manifest.stacks),
        all_pairs=min(amounts) <= MAX_HEADS_ALL_PAIRS,
        similar_pairs=max(amounts) > MAX_HEADS_ALL_PAIRS,
    )


def _functions(results: Mapping[str, StackResults]) -> Table:
    """Return the rules with their thresholds, and how many heads each gives its function."""
    tokens = " or ".join(dict.fromkeys(map(sink_tokens, results.values())))
    counts = Counter(
        function.id for each in results.values() for function in functions_of(each).values()
    )
    rows = []
    for rule in RULES:
        name = rule.noun.format(sink=tokens) or rule.id.replace("_", " ")
        where = rule.where.format(sink=tokens)
        least = "" if math.isnan(rule.threshold.value) else f"{rule.threshold.value:g}"
        family = FAMILY_NAMES.get(rule.family, capital(tokens)) if rule.family else ""
        rows.append(row(
            name, f"Attends {where}." if where else "", family, least,
            rule.threshold.reason, counts[rule.id],
        ))  # fmt: skip
    return Table(RULE_COLUMNS, tuple(rows), label="Functions of heads", style="numbers rules-of")


def _conditions() -> Iterator[tuple[str, str]]:
    """Yield the conditions of all rules, or of rules with two thresholds, with their reasons."""
    for name, threshold in (
        ("sentences at least", thresholds.MIN_SENTENCES),
        ("query tokens at least", thresholds.MIN_QUERIES),
        ("1 − u at least", thresholds.MIN_OFF_UNIFORM),
        ("punctuation: times the mean head", thresholds.TWICE_THE_MEAN),
        ("fixed distance, whatever the token: variability at most", thresholds.POSITION_ONLY),
    ):
        yield f"{capital(name)} {threshold.value:g}", threshold.reason


def not_installed(manifest: Manifest) -> Iterator[str]:
    """Yield a message for each metric of a study whose package is not installed."""
    for name, package in manifest.packages.items():
        if not name.startswith(".") and name not in all_metrics():
            yield (
                f"metric {name}: {package}, which measured it, is not installed, so its numbers "
                "are in the tables but on no page; install it and render the study again"
            )


def _model(manifest: Manifest) -> Iterator[tuple[str, str]]:
    model = manifest.model
    yield "Name", model.name
    yield "Revision", model.revision
    yield "Architecture", f"{model.architecture} ({model.kind})"
    for stack in manifest.stacks:
        shape = (
            f"{stack.n_layers} layers, {stack.n_heads} query heads, {stack.n_key_heads} key heads "
            f"of width {stack.head_width}, {'causal' if stack.causal else 'bidirectional'}"
        )
        yield STACKS[stack.name].capitalize(), shape
    yield "Parameters", f"{model.parameters:,}"
    yield "Numbers", f"{model.dtype} on {model.device}"
    if model.stored:
        dequantised = model.bits and model.stored.startswith("GGUF")
        yield "Weights", model.stored + (", dequantised" if dequantised else "")
    if model.adapter:
        yield "Adapter", f"{model.adapter}, {model.adapter_revision}"
    if model.remote_code:
        yield "Code", f"of the model's repository, trusted: {', '.join(model.remote_code)}"
    yield "Attention", model.attention
    yield "Tokenizer", f"{model.tokenizer} ({model.tokenizer_sha256[:19]}…)"
    yield "Special tokens", model.special_tokens or "none"
    yield from _words_of_tokens(manifest)
    yield "Longest text", f"{model.limit:,} tokens"
    for name, package in sorted(manifest.packages.items()):
        kind = "Reader" if name.startswith(".") else "Metric"
        yield f"{kind} {name}", f"of {package}, not of Headbook"


def _words_of_tokens(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """Yield how words of scripts without spaces were found, if no pipeline found them."""
    texts = sum(
        manifest.count(Side(side), "unspaced")
        for side, name in manifest.annotators.items()
        if UNICODE_WORDS in name
    )
    if texts:
        yield (
            "Words",
            f"{count_text(texts, 'text')} with letters of a script without spaces (Thai, Lao, "
            "Khmer, Burmese, Chinese, Japanese): there, words are made of the tokenizer's tokens. "
            "A token that begins a character cluster begins a word",
        )


def _not_measured(manifest: Manifest) -> Iterator[str]:
    for each in manifest.not_measured:
        ids, more = each.sentences[:LISTED], len(each.sentences) - LISTED
        beyond = f" and {more:,} more (manifest.json has all)" if more > 0 else ""
        baseline_run = f" with {each.baseline}" if each.baseline else ""
        yield f"Not measured{baseline_run}: {', '.join(ids)}{beyond}. {each.why}"


def _merged(manifest: Manifest) -> str:
    if manifest.parts == 1:
        return ""
    repeated, gaps = repeated_text(manifest), merge_gaps(manifest)
    sentences = (
        f"This study was merged of {manifest.parts:,} studies",
        repeated,
        manifest.pooled and f"Pooled: {'; '.join(manifest.pooled)}",
        gaps and f"Missing: {'; '.join(gap.what for gap in gaps)}; the list below has the reasons",
    )
    return " ".join(f"{capital(sentence)}." for sentence in sentences if sentence)


def _rounding(found: Rounding, manifest: Manifest) -> str:
    share = percent(found.changed / found.states) if found.states else MISSING
    return (
        "States are multiplied with the vocabulary in "
        f"{manifest.options['vocabulary_precision']}. Of {found.states:,} ranks on the sentences "
        f"of the self-checks ({found.side} side, {SPACES[EmbeddingSpace(found.space)]}), {share} "
        "differ "
        f"from an exact product; largest difference: {found.largest:,}."
    )


def _option(value: Any) -> str:
    return "default" if value is None else str(value)


def _check(check: Check) -> Row:
    where = STACKS[check.stack] if check.stack else "whole model"
    numbers = f"{check.error:.1e}", f"{check.tolerance:.0e}"
    return Row(
        check.name, (words_cell(where), *numbers, words_cell("yes" if check.passed else "NO"))
    )


def published_tables(results: Mapping[str, StackResults]) -> Iterator[tuple[str, Table]]:
    """Yield each paper with numbers about the study's model, and a table of them."""
    by_source: dict[str, list[BlockRow]] = {}
    for of_stack in results.values():
        for published, number in of_stack.cached(published_numbers).items():
            metric, view, label = published.key
            about = f"{VIEWS[SinkView(view)]}{f', {label_name(label)}' if label else ''}"
            by_source.setdefault(published.source, []).append(row(
                published.figure, published.value, number,
                say(
                    "{metric} ({about}): {heads}", about=about, heads=published.heads,
                    metric=metric_link(metric, all_metrics()[metric].title),
                ),
                published.place,
            ))  # fmt: skip
    for source, rows in by_source.items():
        yield source, Table(PUBLISHED, tuple(rows), label="Published numbers", style="published")
