"""Rules for all numbers of a study, in words."""

from collections.abc import Iterator

from headbook.pages.methods_parts.intervals import FEW
from headbook.report.answers.text_notes import text_notes
from headbook.report.wording import SPACES, capital
from headbook.results.formats import MISSING, percent
from headbook.schema import EmbeddingSpace
from headbook.study.corpus_sums import MAX_HEADS_ALL_PAIRS
from headbook.study.manifest import Manifest, Rounding
from headbook.study.merging import merge_gaps, repeated_text
from headbook.study.study import Study

Rules = Iterator[tuple[str, str]]
MAX_RELATION_SENTENCES = 1_000
MAX_BOOTSTRAP_SENTENCES = 500
OF_ALL_STUDIES = (
    ("Few observations", FEW),
    (
        "Tokens that count",
        "Padding never. Special tokens (those that the tokenizer gives a role or marks as special, "
        "the start token of a decoder, codes of languages; not the unknown token and the mask, "
        "which stand for words) are left out as queries and kept as keys; a query that sees a "
        "single key is left out.",
    ),
    (
        "Words",
        "Linguistic metrics work on words: attention to a word is the sum over its subword tokens, "
        "from a word the mean. Subword tokens belong to words by character offsets.",
    ),
    (
        "Length",
        "Numbers that grow with the length of a text stand beside those of uniform attention: "
        "equal weights on all visible keys, the baseline of every share.",
    ),
    (
        "Random tokens",
        "Repetition scores use 50 seeded sequences of ordinary tokens, each repeated once; they do "
        "not depend on the texts. Findings name a head that one half of them chooses and the other "
        "half, about 25 sequences, confirms.",
    ),
    (
        "Findings",
        "Numbers are of all sentences. The best of many heads is named with those that a test "
        "paired by sentence does not tell from it; what one half of the sentences (by a hash of "
        "their content) chooses has to hold on the other half.",
    ),
)


def rules(study: Study) -> Rules:
    """Yield the rules of a study as terms and sentences."""
    manifest = study.manifest
    yield from OF_ALL_STUDIES
    yield from _part_of_input(manifest)
    yield "Samples", _sample_text(manifest)
    yield "Pairs of heads", _pairs_text(manifest)
    if study.corpus_sums.ablation is not None:
        yield "Importance", _importance_text(manifest)
    yield "Controls", _controls_text(manifest)
    for text in text_remarks(manifest):
        yield "Texts", f"{text}."
    if merged := merged_text(manifest):
        yield "Merged", merged
    for text in manifest.fallbacks:
        yield "Batches", text
    for rounding in manifest.roundings:
        yield "Precision", rounding_text(rounding, manifest)
    double = manifest.options["dtype"] == "float64"
    yield (
        "Sums",
        (
            f"Each sentence's sums are taken in {'float64' if double else 'float32'}, sums over "
            "sentences in float64."
        ),
    )


def _part_of_input(manifest: Manifest) -> Rules:
    sample, limit = manifest.options.get("sample"), manifest.options.get("limit")
    if sample:
        yield (
            "Part of the input",
            (
                f"Of the input, {sample:,} sentences were taken, if it has as many: those with the "
                "smallest hashes of text and target (BLAKE2b, 64 bits), whatever their order."
            ),
        )
    elif limit:
        yield (
            "Part of the input",
            (
                f"Of the input, the first {limit:,} sentences were taken, if it has as many; texts "
                "of a kind often stand together."
            ),
        )


def _sampled(manifest: Manifest, most: int) -> str:
    """Return which sentences a sample of at most so many has, in words."""
    n_sentences = manifest.counts["sentences"]
    if n_sentences <= most:
        return f"all {n_sentences:,} sentences"
    return f"the {most:,} sentences with the smallest hashes of their content"


def _sample_text(manifest: Manifest) -> str:
    n_sentences, most = manifest.counts["sentences"], manifest.options["sample_sentences"]
    parts = ", or as many of each part" * (manifest.parts > 1 and n_sentences > most)
    no_seed = " The sample needs no seed." * (n_sentences > most)
    relations = (
        f" Tests of single relations use at most {MAX_RELATION_SENTENCES:,} sentences chosen in "
        "the same way."
    )
    return (
        "Metrics that need several passes or all pairs of heads use "
        f"{_sampled(manifest, most)}{parts}.{no_seed}"
        f"{relations * (n_sentences > MAX_RELATION_SENTENCES)}"
    )


def _pairs_text(manifest: Manifest) -> str:
    amounts = [len(stack.attention_layers) * stack.n_heads for stack in manifest.stacks]
    every = "Every pair of heads is compared by Jensen–Shannon divergence"
    similar = (
        "the six most similar heads are compared by Jensen–Shannon divergence, for all keys and "
        "with the sink masked; which these are, and groups, order and matrix of similar heads, "
        "follow from the squared Hellinger distance of all pairs (1 minus the mean of Σ√(A·B) "
        "over tokens)."
    )
    if max(amounts) <= MAX_HEADS_ALL_PAIRS:
        return f"{every}."
    if min(amounts) > MAX_HEADS_ALL_PAIRS:
        return f"Of each head {similar}"
    return (
        f"{every} in attention types of at most {MAX_HEADS_ALL_PAIRS} heads. In larger ones, of "
        f"each head {similar}"
    )


def _importance_text(manifest: Manifest) -> str:
    n_sentences = manifest.counts["sentences"]
    most = f" of up to {MAX_BOOTSTRAP_SENTENCES} sentences"
    return (
        f"Heads are replaced on {_sampled(manifest, manifest.options['importance_sentences'])}. "
        "Verdicts count the sentences whose own change exceeds a margin: 1 % of the mean distance "
        "between two sentences (or tokens of different sentences), 0.5 % of the whole model's "
        "loss, or one that the author chose, and at least 10 times the change by rounding weights "
        "to bfloat16. Intervals of changes are bootstrap-t intervals"
        f"{most * (n_sentences > MAX_BOOTSTRAP_SENTENCES)}; estimates come from slopes and have "
        "no interval."
    )


def _controls_text(manifest: Manifest) -> str:
    start = "Uniform attention stands beside every number for which it is defined."
    run = manifest.options["control"]
    if run == "none":
        return (
            f"{start} The same architecture with random weights, and shuffled words, were not run."
        )
    return (
        f"{start} This study also ran: {run.replace(',', ', ')}. Untrained: the same architecture "
        "with random weights; shuffled: the same words, with their tags and heads, in random order."
    )


def text_remarks(manifest: Manifest) -> Iterator[str]:
    """Yield remarks on inputs, on texts that were cut, and on doubled and unknown tokens."""
    for file in manifest.inputs:
        yield from file.messages()
    yield from manifest.cut
    yield from (note.text for note in text_notes(manifest))


def merged_text(manifest: Manifest) -> str:
    """Return of how many studies a study was merged, and what that means; empty if of none."""
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


def rounding_text(rounding: Rounding, manifest: Manifest) -> str:
    """Return the effect on ranks of a vocabulary product in lower precision, in words."""
    share = percent(rounding.changed / rounding.states) if rounding.states else MISSING
    return (
        "States are multiplied with the vocabulary in "
        f"{manifest.options['vocabulary_precision']}. Of {rounding.states:,} ranks on the "
        f"sentences of the self-checks ({rounding.side} side, "
        f"{SPACES[EmbeddingSpace(rounding.space)]}), {share} differ from an exact product; "
        f"largest difference: {rounding.largest:,}."
    )
