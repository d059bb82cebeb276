"""Circuits of a run: what heads read and write, measured on the sample as ``--circuits`` says."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from headbook.ablation.ablator import HeadAblator
from headbook.ablation.costs import costs_of
from headbook.ablation.importance import parameters_of
from headbook.ablation.logit_targets import LogitTargets, target_functions
from headbook.ablation.sample import AblationSample, ablation_sample
from headbook.ablation.targets import StateTargets
from headbook.analysis.arrays import Floats
from headbook.circuits.composition import composition_table
from headbook.circuits.copying import copying_numbers, scored_types
from headbook.circuits.outputs import measure_outputs, top_key_tokens
from headbook.circuits.paths import with_interventions
from headbook.circuits.sample_outputs import SampleOutputs
from headbook.circuits.token_directions import sum_tolerance
from headbook.circuits.towards import MovedVectors, measure_towards, towards_cost, why_no_towards
from headbook.circuits.weights import NoCircuitWeights, find_circuit_weights
from headbook.errors import ModelError
from headbook.metrics import ids
from headbook.model.devices import isolated_random_state
from headbook.model.intervention import PatchableModel, make_patchable
from headbook.model.logit_lens import LogitLens, make_logit_lens
from headbook.model.tokenizer import random_sequences
from headbook.progress import Progress
from headbook.report.results import StackResults, stack_results
from headbook.run.prepare import Run
from headbook.schema import SinkView
from headbook.study.circuits import CircuitResults
from headbook.study.manifest import Check, NotAvailable
from headbook.text.batch import Batch

if TYPE_CHECKING:
    from headbook.study.study import Study

TRIAL_SENTENCES = 2  # sentences on which it is tested whether a pass can begin at a later layer
OFF = "off"  # value of --circuits
WHAT = "what heads read and write"
NO_INTERVENTIONS = "Composition was not checked by interventions"
SELF_CHECK = "direct contributions of embedding, heads and feed-forward blocks add up to the logits"


def moves_vectors(run: Run) -> bool:
    """Whether it is measured how heads move the sentence vectors of a sentence encoder."""
    lens = make_logit_lens(run.model, run.architecture)
    return (
        run.config.circuits != OFF and bool(run.model.pooling) and not isinstance(lens, LogitLens)
    )


def measure_circuits(run: Run, study: "Study", moved: MovedVectors | None = None) -> "Study":
    """Measure what heads read and write; what is impossible is noted in the manifest.

    Args:
        run: the run.
        study: the study without circuits.
        moved: changes of sentence vectors, collected while heads were ablated; None without any.
    """
    if run.config.circuits == OFF:
        return study
    name = f"{run.name}/circuits"
    stored = run.store.load(name, CircuitResults)
    if stored is None:
        with isolated_random_state(run.config.seed, run.model.device):
            stored = run.store.save(
                name, CircuitResults, CircuitResults.join(parts(run, study, moved))
            )
    results = CircuitResults.join([stored])  # columns of the same types, stored or not
    manifest, checks = study.manifest, study.manifest.checks
    gaps = (NotAvailable(WHAT, stack, why) for stack, why in results.missing.items())
    if np.isfinite(results.error):
        checks = (*checks, Check(SELF_CHECK, "", results.error, sum_tolerance(run.model)))
    manifest = replace(manifest, gaps=(*manifest.gaps, *gaps), checks=checks)
    return replace(study, manifest=manifest, circuits=results)


def parts(run: Run, study: "Study", moved: MovedVectors | None) -> Iterator[CircuitResults]:
    """Yield the parts of the results that the model has, and the reasons for missing ones."""
    if run.long.every:
        yield CircuitResults(missing={"": run.long.reason})
        return
    lens = make_logit_lens(run.model, run.architecture)
    known_lens = lens if isinstance(lens, LogitLens) else None
    try:
        if moves_vectors(run):
            yield _sentence_vectors(run, study, moved)
        else:
            yield _outputs(run, study, known_lens)
        if known_lens is not None:
            yield from _weights(run, study, known_lens)
    except ModelError as error:
        yield CircuitResults(missing={"": str(error)})
    if "encoder" in run.architecture.stacks:
        reason = "outputs of encoder heads reach the logits through cross-attention alone"
        yield CircuitResults(missing={"encoder": reason})


def _outputs(run: Run, study: "Study", lens: LogitLens | None) -> CircuitResults:
    """Return the tokens that heads promote on the sample."""
    sample = sample_of(run, study, run.config.sample_sentences)
    architecture = run.architecture
    read = "decoder" if "decoder" in architecture.stacks else "self"
    functions = target_functions(lens, architecture.stacks[read].queries, run.model.mask_id)
    outputs = SampleOutputs(
        run.model, architecture, lens, functions, top_key_tokens(study.corpus_sums.affinities)
    )
    run.progress.stage("what heads write", len(sample.batches))
    results = measure_outputs(outputs, advance_each(run.progress, sample.batches))
    return replace(results, error=outputs.error)


def _sentence_vectors(run: Run, study: "Study", moved: MovedVectors | None) -> CircuitResults:
    """Return the words to and from which heads of a sentence encoder move its vectors."""
    sample = sample_of(run, study, run.config.importance_sentences)
    reason = why_no_towards(run.model, len(np.unique(sample.content_hash)))
    if reason:
        return CircuitResults(missing={"": reason})
    ablator = head_ablator(run, sample, None)
    heads, costs = ablator.head_names, costs_of(ablator, *parameters_of(run.model))
    moved = moved if moved and moved.is_complete else None
    run.progress.message(towards_cost(heads, costs, len(sample.content_hash), moved))
    steps = len(sample.batches) * (1 if moved else 1 + len(heads))
    run.progress.stage("what heads write", steps)
    return measure_towards(ablator, sample, moved, lambda steps: run.progress.advance(steps, 0))


def _weights(run: Run, study: "Study", lens: LogitLens) -> Iterator[CircuitResults]:
    """Yield copying scores and composition of the heads of each stack."""
    sample = sample_of(run, study, run.config.sample_sentences)
    found = find_circuit_weights(run.model, run.architecture, lens, sample.batches[0])
    for stack, weights in found.items():
        if isinstance(weights, NoCircuitWeights):
            yield CircuitResults(missing={stack: weights.why})
            continue
        run.progress.message(f"weights of heads, {stack}: copying and composition")
        counts = _type_counts(run, study, sample, stack)
        induction, previous = (
            _random_scores(stack_results(study)[stack], metric)
            for metric in (ids.INDUCTION_SCORE, ids.PREVIOUS_SCORE)
        )
        table = composition_table(weights, induction, previous)
        batch = Batch.of(
            [*random_sequences(run.sentences.encoder, run.config.seed)], run.model.device
        )
        try:
            table, why = with_interventions(table, weights, batch, induction, previous)
        except ModelError as error:
            why = str(error)
        yield CircuitResults(
            numbers=copying_numbers(weights, counts),
            composition=table,
            types=len(scored_types(weights, counts)),
            remarks=(*weights.remarks, *([f"{NO_INTERVENTIONS}: {why}."] if why else [])),
        )


def _type_counts(run: Run, study: "Study", sample: AblationSample, stack: str) -> dict[int, int]:
    """Return how often the keys' token types occur: in the corpus, or in the sample.

    The corpus is counted for some metrics only, which ``--metrics`` may leave out.
    """
    types = study.corpus_sums.types.get("encoder" if stack == "cross" else stack)
    if types is not None:
        return dict(zip(types.ids.tolist(), types.count.tolist(), strict=True))
    side = run.architecture.stacks[stack].keys
    texts = (batch.texts[side] for batch in sample.batches)
    return Counter(int(token) for each in texts for token in each.ids[each.ordinary])


def _random_scores(results: StackResults, metric: str) -> Floats:
    """Return a score on random sequences, or NaN. *Shape:* ``(layer, head)``."""
    if results.has_value(metric, SinkView.RAW):
        values: Floats = results.heads(metric, SinkView.RAW).value
        return values
    return np.full((results.stack.n_layers, results.stack.n_heads), np.nan)


def sample_of(run: Run, study: "Study", size: int) -> AblationSample:
    """Return the sentences of smallest hashes in small batches.

    Args:
        size: largest number of sentences.
    """
    items = [*run.sentences.reread(run.long.smallest(study.corpus_sums, size))]
    return ablation_sample(
        items,
        run.config.batch_tokens,
        run.sentences.batch,
        alike=not run.architecture.padded,
        shared_length=run.architecture.shared_length,
    )


def head_ablator(run: Run, sample: AblationSample, lens: LogitLens | None) -> HeadAblator:
    """Return the ablator of the run's model, tested on the first sentences of a sample.

    Raises:
        ModelError: outputs of the model's heads cannot be replaced.
    """
    trial = run.sentences.batch(sample.small[0].items[:TRIAL_SENTENCES])
    heads = make_patchable(run.model, run.architecture, trial)
    return HeadAblator(heads, own_targets(run, heads, lens, logits=True))


def own_targets(
    run: Run, heads: PatchableModel, lens: LogitLens | None, *, logits: bool = False
) -> LogitTargets | StateTargets:
    """Return the targets of a model itself, beside those of tasks.

    Args:
        run: the run.
        heads: model whose head outputs can be replaced.
        lens: map from states to logits; None for a model without a language-model head.
        logits: whether the logit of the true token is a target, too.
    """
    side = run.architecture.stacks[heads.read].queries
    return target_functions(lens, side, run.model.mask_id, logits=logits, pooling=run.model.pooling)


def advance_each(progress: Progress, batches: Iterable[Batch]) -> Iterator[Batch]:
    """Yield batches, and advance the progress after each."""
    for batch in batches:
        yield batch
        progress.advance(1, 0)
