"""Facts of a run as the overview prints them: model, texts, and what a reader must know."""

from collections.abc import Iterator, Sequence

from headbook.pages.parts.page import input_rows
from headbook.report.wording import STACKS, count_text, number_word
from headbook.results.formats import percent
from headbook.schema import AttentionStack, Side
from headbook.study.manifest import NOT_GIVEN, Manifest

SAMPLE_SOURCE = "made up for Headbook, nothing is copied from a corpus"
SAMPLE_LICENSE = "Apache-2.0"


def run_facts(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """Yield the facts of a run as terms and values."""
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
    yield from text_facts(manifest)
    if manifest.parts > 1:
        yield "Merged", f"of {manifest.parts:,} studies; Methods says what is missing or pooled"
    if manifest.options.get("pack"):
        joined = count_text(manifest.counts["sentences"], "passage")
        most = f"at most {manifest.options['pack']:,} tokens each"
        yield "Passages", f"{joined}, {most}"
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


def text_facts(manifest: Manifest) -> Iterator[tuple[str, str]]:
    """Yield origin and licence of the texts; those of Headbook's own samples are known."""
    samples = [file.name for file in manifest.inputs if file.sample]
    for term, of_samples, given in (
        ("Origin of texts", SAMPLE_SOURCE, manifest.text_source or NOT_GIVEN),
        ("Licence of texts", SAMPLE_LICENSE, manifest.text_license or NOT_GIVEN),
    ):
        if len(samples) == len(manifest.inputs):
            yield term, of_samples
        elif samples:
            yield term, f"{', '.join(samples)}: {of_samples}; other inputs: {given}"
        else:
            yield term, given


def learned_sink(manifest: Manifest, stack: AttentionStack) -> str:
    """Return the attention to a sink that is no token, in words."""
    return (
        f"{percent(manifest.learned_share(stack))} of the mass goes to the learned sink: a logit "
        "of the softmax that stands for no token. It counts as sink; the weights of a query add "
        "up to the rest"
    )


def run_warnings(manifest: Manifest) -> Iterator[str]:
    """Yield the texts and options that were cut, left out or not used."""
    model = manifest.model
    yield from (f"{text}. Their pages say so." for text in manifest.cut)
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
        kind = "dequantised from" if model.stored.startswith("GGUF") else "quantised to"
        yield (
            f"Weights are {kind} {number_word(model.bits)} bits ({model.stored}): numbers "
            "are those of the quantised model, not of the original."
        )
    if model.adapter:
        base = model.adapter_base and f", which was trained on {model.adapter_base}"
        yield f"Numbers are those of the model with the adapter {model.adapter}{base}."
    if model.remote_code:
        yield (
            "Code of the model's repository was run (--trust-remote-code): "
            f"{', '.join(model.remote_code)}."
        )
    if model.unexpected:
        yield f"The checkpoint holds weights that were not used: {_some(model.unexpected)}."


def run_alarms(manifest: Manifest) -> Iterator[str]:
    """Yield warnings that readers need before they trust the numbers; for most studies none."""
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
