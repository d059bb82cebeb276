"""The page of each metric of heads, tokens and states, and the list of metrics."""

import math
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from headbook.metrics import all_metrics
from headbook.metrics.base import (
    HeadMetric,
    LayerMetric,
    LayerPairMetric,
    LayerwiseMetric,
    Metric,
    Notable,
    PairMetric,
    Source,
)
from headbook.pages.metrics.anchors import ANSWER, anchor_blocks
from headbook.pages.metrics.heads import has_choice, head_closer, head_lead
from headbook.pages.metrics.states import token_blocks
from headbook.pages.parts.blocks import (
    Block,
    Bullets,
    Definitions,
    Details,
    Finder,
    Group,
    Page,
    Symbols,
    Text,
    Words,
    blocks,
    by_stack,
)
from headbook.pages.parts.page import gap_text
from headbook.report.facts.metrics import head_values, token_series, token_values
from headbook.report.head_numbers import HeadMetricNumbers, drawn_numbers
from headbook.report.results import StackResults, sample_size, study_of
from headbook.report.wording import SPACES, VIEWS, capital, count_text
from headbook.results.formats import metric_page, word_list
from headbook.results.sentence import Link, say
from headbook.schema import TokenKey
from headbook.study.corpus_sums import PairColumn
from headbook.study.sums.state_geometry import CKA

Results = Mapping[str, StackResults]
Terms = tuple[tuple[str, Words], ...]
# Metrics of two heads and of states are shown on the pages about them.
ON_OTHER_PAGES = (LayerMetric, LayerPairMetric, PairMetric)


def metric_pages(results: Results, metrics: Sequence[Metric]) -> Iterator[Page]:
    """Yield a page for each measured metric with its variants, unless another page shows it."""
    for metric, variants in with_variants(results, metrics):
        yield metric_page_of(results, metric, variants)


def with_variants(
    results: Results, metrics: Sequence[Metric]
) -> Iterator[tuple[Metric, tuple[Metric, ...]]]:
    """Yield the metrics that have a page, each with its variants.

    A variant has a page of its own if its metric was not measured.
    """
    metrics = [metric for metric in metrics if has_page(results, metric)]
    by_page: dict[str, list[Metric]] = {}
    for metric in sorted(metrics, key=lambda metric: bool(metric.variant_of)):
        by_page.setdefault(metric.variant_of or metric.id, []).append(metric)
    for metric in metrics:
        first, *variants = by_page[metric.variant_of or metric.id]
        if metric is first:
            yield metric, tuple(variants)


def has_page(results: Results, metric: Metric) -> bool:
    """Return whether a metric has a page of its own, or a part of that of its metric."""
    return not isinstance(metric, ON_OTHER_PAGES) and is_measured(results, metric)


def is_measured(results: Results, metric: Metric) -> bool:
    """Return whether any stack has numbers of a metric."""
    if isinstance(metric, HeadMetric):
        return any(drawn_numbers(result, metric) for result in results.values())
    if isinstance(metric, LayerwiseMetric):
        return any(next(token_series(result, metric), None) for result in results.values())
    return True


def metric_page_of(results: Results, metric: Metric, variants: Sequence[Metric]) -> Page:
    """Return the page of a metric; the first stack that has numbers answers."""
    if isinstance(metric, HeadMetric):
        return _head_page(results, metric, variants)
    if isinstance(metric, LayerwiseMetric):
        return _token_page(results, metric, variants)
    anchors = by_stack(results.values(), anchor_blocks, results)
    return _page(results, metric, variants, answer=ANSWER, closer=(Group(anchors),))


def _page(
    results: Results,
    metric: Metric,
    variants: Sequence[Metric],
    *,
    answer: Words,
    scope: Terms = (),
    lead: tuple[Block, ...] = (),
    closer: tuple[Block, ...] = (),
    absent: Iterable[str] = (),
    scripts: tuple[str, ...] = (),
) -> Page:
    """Return a page with what all metrics have: title, definition, and the list of metrics."""
    low, high = metric.limits
    top = "no upper bound" if math.isinf(high) else f"{high:.4g}"
    file = "words" if isinstance(metric, LayerwiseMetric) else "heads"
    symbols = Symbols((
        ("unit", metric.unit or "share or ratio, no unit"),
        ("bounds", f"{low:g}, {top}" if math.isinf(high) else f"{low:g} to {top}"),
        ("file", say("{file}", file=Link(file, f"data.html#{file}"))),
    ))  # fmt: skip
    return Page(
        path=f"metrics/{metric.variant_of or metric.id}.html",
        title=metric.question or metric.title,
        description=metric.summary,
        topic=metric.title,
        answer=answer,
        scope=scope,
        blocks=lead,
        closer=closer,
        measured=(Definitions((metric, *variants), whole=True), symbols),
        absent=tuple(dict.fromkeys(absent)),
        scripts=scripts,
    )


def _head_page(results: Results, metric: HeadMetric, variants: Sequence[Metric]) -> Page:
    """Return the page of a metric of heads."""
    drawn = {name: drawn_numbers(result, metric) for name, result in results.items()}
    of_stacks = {name: numbers for name, numbers in drawn.items() if numbers is not None}
    first = next(iter(of_stacks.values()))
    heads = [variant for variant in variants if isinstance(variant, HeadMetric)]

    def closer(stack: StackResults) -> Iterator[Block]:
        numbers = of_stacks[stack.stack.name]
        return head_closer(numbers, heads, is_first=numbers is first)

    stacks = [numbers.results for numbers in of_stacks.values()]
    return _page(
        results, metric, variants,
        answer=head_values(first).text,
        scope=_head_scope(first),
        lead=by_stack(stacks, lambda r: (head_lead(of_stacks[r.stack.name]),), results),
        closer=by_stack(stacks, closer, results),
        absent=_gaps(results, of_stacks),
        scripts=("metric",) * has_choice(first),
    )  # fmt: skip


def _token_page(results: Results, metric: LayerwiseMetric, variants: Sequence[Metric]) -> Page:
    """Return the page of a metric of tokens."""
    made = {
        name: token_blocks(result, metric, variants)
        for name, result in results.items()
        if next(token_series(result, metric), None)
    }
    stacks = [results[name] for name in made]
    key, numbers = next(token_series(stacks[0], metric))
    compared = f", against {SPACES[key.space]}" if key.space else ""
    sentences = max(number.sentences for number in numbers)
    beside = [Group((Text(v.summary),), v.title, id=v.id) for v in variants]
    return _page(
        results, metric, variants,
        answer=token_values(stacks[0], metric).text,
        scope=(("Sentences", f"{sentences:,}, mean over tokens{compared}."),),
        lead=by_stack(stacks, lambda r: (made[r.stack.name][0],), results),
        closer=(*by_stack(stacks, lambda r: made[r.stack.name][1], results), *beside),
        absent=_gaps(results, made),
    )  # fmt: skip


def _gaps(results: Results, measured: Container[str]) -> Iterator[str]:
    """Yield why stacks lack numbers."""
    for name, result in results.items():
        for gap in result.study.manifest.gaps:
            if gap.stack == name and name not in measured:
                yield f"{gap_text(gap)}."


def _head_scope(numbers: HeadMetricNumbers) -> Terms:
    """Return what a head metric was measured on, and what its numbers are compared with."""
    manifest, is_random = numbers.results.study.manifest, numbers.metric.source is Source.RANDOM
    noun, compared = "sequence" if is_random else manifest.text_noun, []
    if any(numbers.uniform(layer).known for layer in numbers.results.stack.attention_layers):
        compared.append(f"uniform attention on the same {noun}s")
    if numbers.metric.of_no_head:
        compared.append("rules without a model")
    if numbers.notable is not Notable.NONE and numbers.leaders and numbers.leaders.is_tested:
        compared.append(f"other heads, paired by {noun}")
    terms = (_measured_on(numbers),)
    return (*terms, ("Compared with", f"{word_list(compared)}.")) if compared else terms


def _measured_on(numbers: HeadMetricNumbers) -> tuple[str, str]:
    """Return the sentences or sequences on which a head metric is measured."""
    metric, manifest = numbers.metric, numbers.results.study.manifest
    count, most = manifest.counts["sentences"], int(numbers.heads.sentences.max())
    term, sample = capital(f"{manifest.text_noun}s"), sample_size(numbers.results)
    if metric.source is Source.CIRCUITS:
        rest = f"; up to {count_text(most, manifest.text_noun)} a head" * (most > 0)
        return "Measured on", f"{metric.source}{rest}."
    if metric.source is Source.RANDOM:
        return "Sequences", f"{most:,}, of random tokens; {VIEWS[numbers.view]}."
    if metric.source is Source.ALL or sample == count:
        return term, f"{count:,}, all of them; {VIEWS[numbers.view]}."
    some = f"of which {sample:,}, chosen by a hash of their content, count"
    return term, f"{count:,}, {some}; {VIEWS[numbers.view]}."


def study_metrics(results: Results) -> list[Metric]:
    """Return the metrics that a study has numbers for, in the order of lists."""
    measured = {metric.id for result in results.values() for metric in result.metrics}
    corpus_sums = study_of(results).corpus_sums
    sums = [
        *corpus_sums.tokens.values(),
        *corpus_sums.vocabulary.values(),
        *corpus_sums.flows.values(),
    ]
    columns: list[TokenKey | PairColumn] = [c for table in sums for c in table.columns]
    columns += [c for table in corpus_sums.distances.values() for c in table.columns]
    measured |= {column.metric for column in columns}
    measured |= {c.metric for table in corpus_sums.geometry.values() for c in table.columns}
    measured |= {c.metric for table in corpus_sums.anchors.values() for c in table.columns}
    measured |= {CKA for table in corpus_sums.geometry.values() if table.products.size}
    return [metric for metric in all_metrics().values() if metric.id in measured]


def metrics_page(metrics: Sequence[Metric], results: Results) -> Page:
    """Return the list of the study's metrics, which can be searched."""
    sections: dict[str, list[tuple[Link | Words, ...]]] = {}
    missing = []
    for metric in metrics:
        if is_measured(results, metric):
            link = Link(metric.title, metric_page(metric.id))
            entry = (link, metric.question, metric.summary)
            sections.setdefault(capital(metric.section), []).append(entry)
        else:
            missing.append(f"{metric.title}: {metric.question} {metric.summary}")
    amount = len(metrics) - len(missing)
    of_sections = tuple((title, tuple(entries)) for title, entries in sections.items())
    without = Details(f"Without numbers here: {len(missing)}", (Bullets(tuple(missing)),))
    return Page(
        path="metrics/index.html",
        title="Which numbers are there?",
        description="Every number of this site: what it means, its unit and its source.",
        topic="All metrics",
        answer=f"There are {count_text(amount, 'metric')} in "
        f"{count_text(len(sections), 'group')}: numbers of heads, of tokens, or of layers.",
        blocks=blocks(
            Finder("metrics", "Find a metric", "entropy, distance, subject …", of_sections),
            without if missing else None,
        ),
        scripts=("filter_list",),
    )  # fmt: skip
