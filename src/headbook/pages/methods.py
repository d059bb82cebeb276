"""The page of methods: how numbers were made, what was checked, and figures of papers."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from headbook.metrics import all_metrics
from headbook.metrics.base import Metric
from headbook.pages.methods_parts.intervals import interval_blocks
from headbook.pages.methods_parts.public_demo import public_demo_question
from headbook.pages.methods_parts.rules import rules
from headbook.pages.metric import is_measured
from headbook.pages.parts.blocks import (
    Block,
    Bullets,
    Definition,
    Definitions,
    Details,
    Page,
    Question,
    Row,
    Symbols,
    Table,
    Text,
    Title,
    blocks,
    row,
)
from headbook.pages.parts.page import coverage, gap_texts
from headbook.report import thresholds
from headbook.report.facts.circuits.rules import why_no_circuits
from headbook.report.facts.functions import FAMILY_NAMES, RULES, functions_of
from headbook.report.published import published_numbers
from headbook.report.results import StackResults, study_of
from headbook.report.sink import sink_tokens
from headbook.report.wording import STACKS, VIEWS, capital, count_text, label_name
from headbook.results.formats import metric_page
from headbook.results.sentence import Link, Marked, Sentence, metric_link, say
from headbook.schema import UNICODE_WORDS, Side, SinkView
from headbook.study.manifest import NOT_GIVEN, Check, Manifest
from headbook.study.study import Study

Results = Mapping[str, StackResults]
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
SENTENCES_LIKE_THESE = (
    "Intervals are about sentences like these. Consecutive sentences of a file share genre and "
    "author, so that intervals of the beginning of a file hold the value of the whole file less "
    "often than 95 % of the time; those of a random sample do not have this fault."
)
FUNCTION_RULES = (
    "A rule holds if the lower end of the 95 % interval of its number reaches the least value. "
    "Shares are of the attention off the sink: rows with the sink masked and renormalised; rows "
    "with more than 90 % on the sink are left out. The share on the sink is a number beside the "
    "function; where the lower end of its share, corrected for chance, reaches half, the sentence "
    "of a head says so.",
    "Where a share decides, it is corrected for chance: (share − u) / (1 − u), where u is the "
    "share under uniform attention over the same keys, for the same queries: 0 for uniform "
    "attention in texts of any length, 1 for all of it. Pages print share and u (“uniform "
    "attention”). The rules are the same for models with random weights.",
)
STATES = (
    ("input", "Input of layer 0: token, position and type embedding, after the embedding norm if "
     "there is one."),
    ("mid", "After attention: attention output plus the residual."),
    ("out", "After the layer: output of the layer."),
    ("positional", "Token + position embedding: output of the embedding block at the token's own "
     "position, a reference from the vocabulary."),
    ("raw", "Token embedding: the token embedding alone, a reference from the vocabulary."),
)  # fmt: skip
PAPERS = (
    "They are no targets: texts, annotation and definitions differ. Heads and layers count from 0. "
    "Brackets: 95 % intervals over sentences; means over heads have none."
)
AUTHORS = (
    ("--sample", "takes sentences from all of the input by their hashes, not from its beginning"),
    ("--control", "runs the same architecture with random weights, or shuffled words, as well"),
    ("--margin", "sets the change by replacing a head from which a sentence counts as changed"),
    ("--metrics", "chooses what is measured"),
)


def methods_page(results: Results, metrics: Sequence[Metric]) -> Page:
    """Return the page on how the numbers of a study were made.

    Args:
        results: results by stack.
        metrics: metrics that the study has.
    """
    study = study_of(results)
    manifest = study.manifest
    failed = "" if not manifest.failed else " Some self-checks failed: see below."
    return Page(
        path="methods.html",
        title="How are the numbers made, and when should they be trusted?",
        topic="Methods",
        description="Definitions, intervals, self-checks, model and versions behind every number.",
        answer="Every number is a ratio of sums over sentences, with an interval that takes the "
        f"sentences as a sample, beside its value under uniform attention.{failed}",
        scope=(("Model", manifest.model.name), ("Texts", f"{coverage(manifest)}.")),
        blocks=blocks(
            _rules(study),
            _intervals(results),
            _views(manifest),
            _functions(results),
            _checks(manifest),
            _gaps(results),
            _model(manifest),
            _states(),
            _metrics(results, metrics),
            _published(results),
            public_demo_question(results),
            _run(manifest),
        ),
        contents=True,
    )  # fmt: skip


def _rules(study: Study) -> Question:
    return Question(
        "rules", "Rules for all numbers",
        "Sums over sentences are divided once; never a mean of sentences' ratios.",
        (Symbols(tuple(rules(study))),), "sums over sentences",
    )  # fmt: skip


def _intervals(results: Results) -> Question:
    return Question(
        "intervals", "Intervals and tests",
        "An interval says what other sentences like these would give: 95 % of such intervals hold "
        "the value of all sentences.",
        (*interval_blocks(results), Text(SENTENCES_LIKE_THESE)),
        "confidence interval significance statistics p-value bootstrap bootstrap-t wilson "
        "resampling student cluster robust variance multiple testing max-t",
    )  # fmt: skip


def _model(manifest: Manifest) -> Question:
    return Question(
        "model", "Model", "What was run, as it was loaded.",
        (Symbols(tuple(model_facts(manifest))),), "architecture revision tokenizer weights",
    )  # fmt: skip


def _states() -> Question:
    return Question(
        "states", "States of a token",
        "States of the residual stream are the model's own activations, never recomputed from "
        "weights.",
        (Symbols(STATES),), "residual stream hidden states embeddings",
    )  # fmt: skip


def _views(manifest: Manifest) -> Question:
    causal = any(stack.causal for stack in manifest.stacks)
    first = " or, in causal attention, to the first position" * causal
    default = "sink masked in causal attention, else all keys" if causal else "all keys"
    pairs = tuple(
        (VIEWS[view], say("{text} (in files: {view})", text=text, view=Marked(str(view), "code")))
        for view, text in KEYS.items()
    )
    return Question(
        "views", "Attention sinks and keys",
        f"Numbers are given for three sets of keys; pages of metrics open with {default}, other "
        "pages name theirs.",
        (
            Text(f"Many heads attend mostly to special tokens{first}: the attention sink."),
            Symbols(pairs),
        ),
        "all keys, sink masked, sink masked and renormalised: raw nosink renorm attention sink "
        "no-op null attention parking bos cls sep massive activations",
    )  # fmt: skip


def _functions(results: Results) -> Question:
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
    table = Table(RULE_COLUMNS, tuple(rows), label="Functions of heads", style="numbers rules-of")
    return Question(
        "functions", "Functions of heads",
        "Every head has one function: the first of these rules that holds.",
        (*map(Text, FUNCTION_RULES), table, Symbols(tuple(_conditions()))),
        "types roles classes taxonomy previous-token next-token local-window",
    )  # fmt: skip


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


def _checks(manifest: Manifest) -> Question:
    on = f"Run in this study on {count_text(manifest.checked_sentences, 'sentence')}"
    answer = (
        f"{on}. Some failed: do not trust the numbers that they concern."
        if manifest.failed
        else f"{on}: all passed, so what was read is what the model computed."
    )
    table = Table(
        CHECKED, tuple(map(_check, manifest.checks)), caption=DIFFERENCE, label="Self-checks"
    )
    checks: Block = table
    if not manifest.failed:
        checks = Details("Each check, with its largest difference", (table,))
    return Question(
        "checks", "Self-checks", answer, (checks,), "tests correctness verification eager"
    )


def _check(check: Check) -> Row:
    where = STACKS[check.stack] if check.stack else "whole model"
    numbers = f"{check.error:.1e}", f"{check.tolerance:.0e}"
    return row(check.name, where, *numbers, "yes" if check.passed else "NO")


def _gaps(results: Results) -> Question:
    manifest = study_of(results).manifest
    texts = (
        *_not_measured(manifest),
        *filter(None, (
            *gap_texts(manifest.gaps), why_no_circuits(results), *not_installed(manifest),
        )),
    )  # fmt: skip
    answer = (
        "Some numbers are missing, for the reasons below."
        if texts
        else "Nothing that was asked for is missing."
    )
    return Question(
        "gaps", "Not available for this model", answer, blocks(Bullets(texts) if texts else None)
    )


def _metrics(results: Results, metrics: Sequence[Metric]) -> Question:
    """Return the definitions of all metrics of the study, and the names of all others."""
    measured = [metric for metric in metrics if is_measured(results, metric)]
    others = [metric for metric in metrics if metric not in measured]
    left_out = [metric for name, metric in all_metrics().items() if metric not in metrics]
    return Question(
        "metrics", "Metrics",
        say("The {link} can be searched, and each has a page with its numbers.",
            link=Link("list of metrics", "metrics/index.html")),
        blocks(
            Details(
                f"Formulas and sources of {count_text(len(measured), 'metric')}",
                (Definitions(tuple(Definition.of(m, metric_page(m.id)) for m in measured)),),
            ),
            Details(
                f"{count_text(len(others), 'metric')} without numbers here",
                (Definitions(tuple(others)),),
            ) if others else None,
            Text(f"Not measured in this study: {', '.join(m.id for m in left_out)}.")
            if left_out else None,
        ),
        "definitions formulas glossary",
    )  # fmt: skip


def _published(results: Results) -> Question | None:
    tables = [*published_tables(results)]
    if not tables:
        return None
    papers = [
        block for source, table in tables
        for block in (Title(Sentence((Marked(source, "cite"),))), table)
    ]  # fmt: skip
    return Question(
        "published", "Published results",
        "Numbers that papers print about this model, beside those of this study.",
        (Text(PAPERS), *papers), "papers replication reproduce published",
    )  # fmt: skip


def _run(manifest: Manifest) -> Question:
    options = tuple(
        (name.replace("_", " "), _option(value)) for name, value in sorted(manifest.options.items())
    )
    versions = tuple(sorted(manifest.versions.items()))
    advice = tuple((Sentence((Marked(flag, "code"),)), text) for flag, text in AUTHORS)
    return Question(
        "run", "Options and versions",
        "What whoever makes such a site can choose, and what was chosen here.",
        (
            Details("For authors: options that decide how far numbers reach", (Symbols(advice),)),
            Details("Options of this run", (Symbols(options),)),
            Details("Libraries that computed the numbers", (Symbols(versions),)),
        ),
        "options versions libraries reproduce",
    )  # fmt: skip


def not_installed(manifest: Manifest) -> Iterator[str]:
    """Yield a message for each metric of a study whose package is not installed."""
    for name, package in manifest.packages.items():
        if not name.startswith(".") and name not in all_metrics():
            yield (
                f"metric {name}: {package}, which measured it, is not installed, so its numbers "
                "are in the tables but on no page; install it and render the study again"
            )


def model_facts(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """Yield the facts of the model as it was loaded, as terms and values."""
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
    yield "Licence", model.license or NOT_GIVEN
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


def _option(value: object) -> str:
    return "default" if value is None else str(value)


def published_tables(results: Mapping[str, StackResults]) -> Iterator[tuple[str, Table]]:
    """Yield each paper with numbers about the study's model, and a table of them."""
    by_source: dict[str, list[Row]] = {}
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
