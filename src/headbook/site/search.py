"""Data of the search of every page, with synonyms.

Readers type the words of papers and of other tools; pages do not repeat them all.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from types import MappingProxyType
from typing import Any

from headbook.author import OVERVIEW, plain_words
from headbook.metrics import all_metrics
from headbook.metrics.base import HeadMetric
from headbook.pages.about import SectionPage
from headbook.pages.heads import HeadsPage
from headbook.pages.metric import ON_OTHER_PAGES, is_measured, study_metrics, with_variants
from headbook.pages.overview_parts.answers import answered_pages, words_text
from headbook.pages.parts.blocks import Page
from headbook.pages.parts.page import AnalysisPage, TemplatePage
from headbook.report.facts.functions import families_of, functions_of
from headbook.report.relation_tests import best_relation, tests_of_stack
from headbook.report.relations import relation_words
from headbook.report.results import StackResults, study_of
from headbook.report.wording import sentence_page, visible
from headbook.results.formats import metric_page
from headbook.schema import heads_of, relation_of
from headbook.site.registry import PAGES, POSITION, SINK, USELESS
from headbook.study.manifest import Manifest
from headbook.study.sentence_data import StoredSentence
from headbook.study.study import Study

COREFERENCE = "coreference coref anaphora pronoun antecedent"
INDUCTION = "induction head in-context learning copying prefix matching repeated sequence"
HEAT_MAP = "heat map pdf"
ENTROPY = "normalised normalized entropy sharp sharpness broad diffuse uniform confidence"

# Search words by address of a metric's page or of a part of a page; for a question, by the question
# or the column that answers it. Words of whole pages are in `headbook.site.registry.PAGES`.
KEYWORDS = MappingProxyType({
    "attention_to/previous": f"previous-token head previous token {POSITION}",
    "attention_to/next": f"next-token head next token {POSITION}",
    "attention_to/first": SINK,
    "attention_to/separator": SINK,
    "attention_to/same_token": f"duplicate-token head duplicate same token {COREFERENCE}",
    "attention_to/rest_of_word": "subword word piece wordpiece bpe tokenization",
    "distance_ratio/": "long range distant local attention distance",
    "sink_share/": SINK,
    "relative_entropy/": ENTROPY,
    "induction_score/": INDUCTION,
    "index.html#limits": "distrust trust limitations caveats explanation causal conclude",
    "metrics/attention_to.html": f"previous-token next-token self same token {COREFERENCE} {SINK}",
    "metrics/attention_entropy.html": ENTROPY,
    "metrics/relative_entropy.html": ENTROPY,
    "metrics/confidence.html": "mean maximum weight important heads pruning",
    "metrics/duplicate_score.html": f"duplicate-token head {INDUCTION} {COREFERENCE}",
    "metrics/induction_score.html": INDUCTION,
    "metrics/positional_argmax.html": f"previous-token next-token head {POSITION}",
    "metrics/offset_profile.html": f"previous-token next-token head {POSITION}",
    "metrics/previous_score.html": f"previous-token head {POSITION}",
    "metrics/output_norm_share.html": f"contribution value-weighted norm {USELESS}",
    "metrics/attention_parts.html": f"vertical diagonal stripes key-driven content {POSITION}",
    "metrics/pattern.html": f"vertical diagonal stripes block {SINK}",
    "metrics/relation_accuracy.html": "dependency dobj nsubj head dependent syntactic",
    "metrics/surface_rule.html": "baseline next noun nearest verb offset heuristic word order",
    "metrics/dependency_trees.html": "parse uas maximum spanning tree",
    "metrics/phrase_trees.html": "constituency parse constituents",
    "metrics/rollout_self.html": "attention rollout abnar",
    "metrics/sink_norm_share.html": SINK,
    "metrics/sink_rate.html": SINK,
    "metrics/sink_share.html": SINK,
    "metrics/variability.html": "position content",
})  # fmt: skip

PAGE_KEYWORDS = {entry.path: entry.keywords for entry in PAGES}
# Synonyms of words of a query: labels of other annotation schemes, other spellings.
SYNONYMS = MappingProxyType({
    "acomp": ("xcomp",),
    "agent": ("obl",),
    "attr": ("cop",),
    "auxpass": ("aux:pass",),
    "coref": ("coreference",),
    "csubjpass": ("csubj",),
    "dative": ("iobj",),
    "dobj": ("obj",),
    "iobject": ("iobj",),
    "neg": ("advmod",),
    "nn": ("compound",),
    "nsubjpass": ("nsubj:pass",),
    "num": ("nummod",),
    "pcomp": ("obl",),
    "pobj": ("obl", "nmod"),
    "poss": ("nmod:poss",),
    "prep": ("case",),
    "prt": ("compound:prt",),
    "rcmod": ("acl:relcl",),
    "relcl": ("acl:relcl",),
    "normalized": ("normalised", "relative"),
    "normalised": ("relative",),
    "prune": ("pruning",),
    "pruned": ("pruning",),
    "redundancy": ("redundant",),
    "tokenisation": ("tokenization",),
})  # fmt: skip


MAX_SEARCHED_SENTENCES = 5000  # the search has no index, so more would make typing slow
SENTENCES_PER_TOKEN = 5  # sentences to which a result for a token links
TOKEN_MARKS = ("␣", "##")  # prefixes of vocabulary tokens that texts do not have
# Title, address and content of pages, and of their parts, that every study has.
PAGES_OF_ALL_STUDIES = (
    ("Overview", "index.html", "What the model is, claims, all heads, families, and all answers."),
    ("What not to conclude", "index.html#limits", "Limits of every number of this site."),
    ("Data", "data.html", "Every number of this site as a file."),
    ("About", "about.html", "How to cite this site; origin and licences of texts and model."),
)
# Universal dependency relations in words that readers know, for those who do not know the labels.
RELATION_WORDS = {
    "acl": "clause that describes a noun",
    "acl:relcl": "relative clause",
    "advcl": "adverbial clause",
    "advmod": "adverb, adverbial modifier",
    "amod": "adjective, adjectival modifier",
    "appos": "apposition",
    "aux": "auxiliary verb",
    "aux:pass": "passive auxiliary",
    "case": "preposition, case marker",
    "cc": "conjunction, and, or",
    "ccomp": "clausal complement, object clause",
    "compound": "compound noun",
    "compound:prt": "verb particle",
    "conj": "conjunct, coordination",
    "cop": "copula",
    "csubj": "clausal subject",
    "det": "determiner, article",
    "expl": "expletive",
    "fixed": "fixed expression",
    "flat": "name of several words",
    "iobj": "indirect object",
    "mark": "subordinating conjunction, marker",
    "nmod": "noun that modifies a noun",
    "nmod:poss": "possessive, genitive",
    "nsubj": "subject of a verb",
    "nsubj:pass": "passive subject",
    "nummod": "numeral, number",
    "obj": "direct object",
    "obl": "oblique, adjunct of a verb",
    "punct": "punctuation",
    "xcomp": "open complement, infinitive",
}


def find_data(results: Mapping[str, StackResults], pages: Sequence[TemplatePage]) -> dict[str, Any]:
    """Return the data of the search, which also reads ``data/headlist.js``.

    Args:
        results: results by stack.
        pages: pages of metrics and pages across metrics.

    Returns:
        ``questions``, ``metrics`` and ``pages``: title, address, more words, words that are found
        but not shown; ``sentences``: number, address, text, other text; ``total``: how many
        sentences have a page; ``tokens``: see `_tokens`; ``same``: what words of a query may mean
        as well; ``functions`` and ``notes``, if any: function, and the author's name and text, of
        each head, in their order.
    """
    study = study_of(results)
    paged = study.sentence_data.paged
    searched = paged[:MAX_SEARCHED_SENTENCES]
    manifest = study.manifest
    return {
        "questions": [*_answered(pages), *_questions(pages)],
        "metrics": [*_metric_lines(results), *_metrics_on_other_pages(results)],
        "pages": [_line(page, manifest) for page in pages if not _is_of_metric(page)]
        + [
            _words(
                title, path, note, plain_words(visible(manifest.notes)) if path == OVERVIEW else ""
            )
            for title, path, note in PAGES_OF_ALL_STUDIES
        ],
        "sentences": [_sentence(sentence) for sentence in searched],
        "total": len(paged),
        "tokens": _tokens(study, searched),
        "same": {word: [*synonyms] for word, synonyms in SYNONYMS.items()},
        "functions": [row for result in results.values() for row in _functions(result)],
    } | _notes(results)


def _functions(results: StackResults) -> Iterator[list[str]]:
    """Yield noun and sentence of the function of each head, and words that are not shown."""
    families, tests = families_of(results), results.cached(tests_of_stack)
    for head, function in functions_of(results).items():
        words = ["head", families[function.family] if function.family else ""]
        best = best_relation(tests, (head.layer, head.head))
        if tests is not None and best is not None:
            label = tests.labels[best]
            spelled = RELATION_WORDS.get(relation_of(label)[0], "")
            words += [f"best at {relation_words(label)}", spelled]
        yield [function.noun, function.text.text, " ".join(filter(None, words))]


def _notes(results: Mapping[str, StackResults]) -> dict[str, list[list[str]]]:
    """Return the author's name of each head and the note on it; nothing without any."""
    manifest = study_of(results).manifest
    notes = [manifest.note_on(head) for r in results.values() for head in heads_of(r.stack)]
    return (
        {"notes": [[visible(n.quoted), plain_words(visible(n.text))] for n in notes]}
        if any(notes)
        else {}
    )


def _line(page: TemplatePage, manifest: Manifest) -> list[str]:
    title = words_text(page.topic) if isinstance(page, AnalysisPage | Page) else page.title
    own = page.text if isinstance(page, SectionPage) else manifest.page_notes.get(page.path, "")
    return _words(title, page.path, page.description, plain_words(visible(own)))


def _metrics_on_other_pages(results: Mapping[str, StackResults]) -> Iterator[list[str]]:
    """Yield metrics without a page: of two heads, of states, and those without numbers."""
    known = study_metrics(results)
    for metric in all_metrics().values():
        if metric not in known or not is_measured(results, metric):
            yield [metric.title, "methods.html#metrics", "Not measured here.", metric.id]
        elif isinstance(metric, ON_OTHER_PAGES):
            words = f"{metric.id} {metric.question}"
            yield [metric.title, metric_page(metric.id), metric.summary, words]


def _is_of_metric(page: TemplatePage) -> bool:
    """Return whether a page is that of one metric, not their list."""
    return page.path.startswith("metrics/") and page.path != "metrics/index.html"


def _metric_lines(results: Mapping[str, StackResults]) -> Iterator[list[str]]:
    """Yield metrics, and the variants that their pages show, by their titles."""
    notes = study_of(results).manifest.page_notes
    for metric, variants in with_variants(results, study_metrics(results)):
        path = metric_page(metric.variant_of or metric.id)
        note = plain_words(visible(notes.get(path, "")))
        files = HEAT_MAP if isinstance(metric, HeadMetric) else ""
        words = (metric.id, metric.question, KEYWORDS.get(path, ""), note, files)
        yield [metric.title, path, metric.summary, " ".join(filter(None, words))]
        for variant in variants:
            keywords = KEYWORDS.get(f"metrics/{variant.id}.html", "")
            more = f"{variant.id} {keywords}".strip()
            yield [variant.title, f"{path}#{variant.id}", variant.summary, more]


def _words(title: str, path: str, note: str, more: str = "") -> list[str]:
    """Return title, address and text of a result, and words that are found but not shown."""
    words = KEYWORDS.get(path) or PAGE_KEYWORDS.get(path, "")
    return [title, path, note, " ".join(filter(None, (words, more)))]


def _answered(pages: Iterable[TemplatePage]) -> Iterator[list[str]]:
    """Yield the questions of pages that answer some, each with its answer.

    Pages of single metrics come last: five answers are shown at first.
    """
    for page in answered_pages(pages):
        yield _words(page.title, page.path, words_text(page.answer))
        for question in page.questions:
            address = f"{page.path}#{question.id}"
            yield [question.title, address, words_text(question.answer), question.keywords]


def _questions(pages: Iterable[TemplatePage]) -> Iterator[list[str]]:
    """Return the rankings of the list of heads; each leads to the list in its order."""
    for page in pages:
        for question in page.rankings if isinstance(page, HeadsPage) else ():
            head_texts = (
                (first.head.text, first.number.text, first.interval, first.behind)
                for first in question.heads
            )
            value = "; ".join(" ".join(filter(None, texts)) for texts in head_texts)
            label = question.column.label.partition(":")[0]
            search_words = " ".join(filter(None, (KEYWORDS.get(question.column.key), label)))
            yield [question.text, f"{page.path}#{question.view}", value, search_words]


def _sentence(sentence: StoredSentence) -> list[Any]:
    texts = [visible(text.text) for text in sentence.texts.values()]
    return [sentence.number, sentence_page(sentence.number), *texts]


def _tokens(study: Study, sentences: Iterable[StoredSentence]) -> list[list[Any]]:
    """Return each piece of the sentences, and types of other sentences, in alphabetical order.

    Returns:
        By piece: its letters, how often it occurs in the sentences, in how many of them, the
        numbers of the first, and 1 where the page of tokens has it.
    """
    counts: dict[str, int] = {}
    numbers_by_piece: dict[str, dict[int, None]] = {}
    for sentence in sentences:
        for piece in chain.from_iterable(text.pieces for text in sentence.texts.values()):
            name = _bare(visible(piece))
            counts[name] = counts.get(name, 0) + 1
            numbers_by_piece.setdefault(name, {})[sentence.number] = None
    types = {
        _bare(visible(name)) for sums in study.corpus_sums.types.values() for name in sums.names
    }
    return [
        [
            name,
            counts.get(name, 0),
            len(numbers),
            [*islice(numbers, SENTENCES_PER_TOKEN)],
            int(name in types),
        ]
        for name in sorted({*counts, *types} - {""})
        for numbers in (numbers_by_piece.get(name, {}),)
    ]


def _bare(name: str) -> str:
    """Return a vocabulary entry as it stands in texts."""
    for mark in TOKEN_MARKS:
        if len(name) > len(mark):
            name = name.removeprefix(mark)
    return name.strip()
