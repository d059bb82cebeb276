"""A study: manifest, sums and sentence data as one value that is saved, loaded and merged."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from headbook.errors import StudyError
from headbook.output_folder import OutputKind, replace_folder
from headbook.schema import BaselineRun, HeadName
from headbook.study import ablation_tables, storage, tables, token_tables
from headbook.study.circuits import COMPOSITION, EXEMPLAR_TOKENS, PROMOTED_TOKENS, CircuitResults
from headbook.study.compatibility import check_compatible
from headbook.study.contrasts import PairDifferences, pair_differences
from headbook.study.corpus_sums import (
    CorpusSums,
    HeadTable,
    TokenSums,
    finish_sampled,
    join_columns,
)
from headbook.study.exemplars import choose_exemplars
from headbook.study.manifest import Check, Manifest, NotAvailable, Rounding
from headbook.study.sentence_data import Exemplar, MapSample, SentenceData

if TYPE_CHECKING:
    from headbook.notebook.views import NotebookView

MERGED_CIRCUITS = NotAvailable(
    "what heads read and write", "",
    "this study was merged, and tokens and exemplars are chosen on the sentences of one study; "
    "collect all sentences in one study",
)  # fmt: skip
MAX_NAMED_INPUTS = 3  # inputs that `Study.__repr__` names


@dataclass(frozen=True, eq=False)
class Study:
    """All numbers of a model's attention and states on a corpus.

    Attributes:
        manifest: record of how the study was made.
        corpus_sums: sums over all sentences.
        sentence_data: data of single sentences for pages.
        baselines: numbers of heads of each baseline, by stack.
        stored_sampled: sampled metrics by stack, as read from a file; None before a study is saved
            and in merged studies.
        map_sample: attention maps by which models are compared.
        circuits: what heads read and write; empty in merged studies, since tokens are chosen on the
            sentences of one study.
    """

    manifest: Manifest
    corpus_sums: CorpusSums
    sentence_data: SentenceData
    baselines: Mapping[BaselineRun, Mapping[str, HeadTable]] = field(default_factory=dict)
    stored_sampled: Mapping[str, HeadTable] | None = None
    map_sample: MapSample = field(default_factory=MapSample)
    circuits: CircuitResults = field(default_factory=CircuitResults)

    def __repr__(self) -> str:
        """Return three lines: the model and its heads, the sentences, and the date and versions."""
        manifest = self.manifest
        heads = ", ".join(
            f"{stack.name} {len(stack.attention_layers)} × {stack.n_heads} heads"
            for stack in manifest.stacks
        )
        inputs = ", ".join(file.name for file in manifest.inputs[:MAX_NAMED_INPUTS])
        n_more = len(manifest.inputs) - MAX_NAMED_INPUTS
        return (
            f"Study of {manifest.model.name} ({manifest.model.kind}): {heads}\n"
            f"{manifest.counts['sentences']:,} sentences of {inputs}"
            f"{f' and {n_more:,} more' if n_more > 0 else ''}\n"
            f"collected {manifest.created or 'on an unknown date'} by Headbook "
            f"{manifest.headbook}, {manifest.model.dtype} on {manifest.model.device}"
        )

    def _repr_html_(self) -> str:
        """Return the overview as HTML, for notebooks: summary, claims, and the wall of heads."""
        from headbook.notebook.views import study_html  # noqa: PLC0415

        return study_html(self)

    def head(self, layer: int, head: int, stack: str | None = None) -> "NotebookView":
        """Return the card of a head, both counted from 0: mean map, role, exemplars, and effect.

        Args:
            stack: kind of attention: ``encoder``, ``decoder`` or ``cross``; the first by default.

        Raises:
            ConfigError: the study has no such head.
        """
        from headbook.notebook.views import head_view  # noqa: PLC0415

        return head_view(self, layer, head, stack)

    def sentence(self, index: int) -> "NotebookView":
        """Return the maps of all heads in a sentence; sentence 1 of the site has index 0.

        Raises:
            ConfigError: no maps are stored of such a sentence.
        """
        from headbook.notebook.views import sentence_view  # noqa: PLC0415

        return sentence_view(self, index)

    def plot(self, name: str, stack: str | None = None, *, label: str = "", view: str = "") -> Any:
        """Return a chart of the site: an Altair chart, or a `NotebookView` if Altair has no such.

        Args:
            name: id of a metric, or name of a figure as `headbook.write_figures` returns it.
            stack: kind of attention; the first that has numbers by default.
            label, view: label and view of a head metric, as in tables; the site's by default.

        Raises:
            ConfigError: the study has no such figure, stack, label or view.
        """
        from headbook.notebook.views import plot  # noqa: PLC0415

        return plot(self, name, stack, label, view)

    @cached_property
    def head_tables(self) -> Mapping[str, HeadTable]:
        """Sums of all head metrics, by stack."""
        return head_tables(self.corpus_sums, self.sampled)

    @cached_property
    def sampled(self) -> Mapping[str, HeadTable]:
        """Sampled metrics by stack, as stored or computed from the statistics of each sentence."""
        return (
            sampled_tables(self.corpus_sums) if self.stored_sampled is None else self.stored_sampled
        )

    @cached_property
    def heads(self) -> pd.DataFrame:
        """Table ``heads``: a row for each head, metric, view and label."""
        return tables.HEADS.build(self)

    @cached_property
    def layers(self) -> pd.DataFrame:
        """Table ``layers``: a row for each layer, metric, view and label."""
        return tables.LAYERS.build(self)

    @cached_property
    def words(self) -> pd.DataFrame:
        """Table ``words``: a row for each token metric, layer, state and class of words."""
        return token_tables.WORDS.build(self)

    @cached_property
    def tests(self) -> pd.DataFrame:
        """Table ``tests``: a row for each claim of pages, with baseline, difference and p.

        Raises:
            StudyError: `headbook.report.tables`, which computes the table, was not imported.
        """
        if "tests" not in tables.TABLES_OF_REPORT:
            raise StudyError("study.tests: import headbook.report.tables, or use headbook.Study")
        return tables.TABLES_OF_REPORT["tests"].build(self)

    @cached_property
    def controls(self) -> pd.DataFrame:
        """Table ``controls``: a row for each layer and head metric under uniform attention."""
        return tables.CONTROLS.build(self)

    @cached_property
    def compared(self) -> pd.DataFrame:
        """Table ``compared``: a row for each number of each head of each baseline."""
        return tables.COMPARED.build(self)

    @cached_property
    def pairs(self) -> pd.DataFrame:
        """Table ``pairs``: a row for each number of every two heads."""
        return tables.PAIRS.build(self)

    @cached_property
    def groups(self) -> pd.DataFrame:
        """Table ``groups``: a row for each number of each head and group of sentences."""
        return tables.GROUPS.build(self)

    @cached_property
    def pair_differences(self) -> dict[str, PairDifferences]:
        """Differences within minimal pairs of sentences, by stack."""
        differences = {}
        for stack in self.manifest.stacks:
            present = np.zeros((stack.n_layers, stack.n_heads), dtype=bool)
            present[[*stack.attention_layers]] = True
            member_column = self.manifest.options.get("pair_member")
            differences[stack.name] = pair_differences(
                self.corpus_sums.heads[stack.name], present, member_column
            )
        return {stack: found for stack, found in differences.items() if found is not None}

    @cached_property
    def minimal_pairs(self) -> pd.DataFrame:
        """Table ``minimal_pairs``: a row for each number of each head within minimal pairs."""
        return tables.MINIMAL_PAIRS.build(self)

    @cached_property
    def geometry(self) -> pd.DataFrame:
        """Table ``geometry``: a row for each number of the states of a layer."""
        return token_tables.GEOMETRY.build(self)

    @cached_property
    def types(self) -> pd.DataFrame:
        """Table ``types``: a row for each token type, layer and state."""
        return token_tables.TYPES.build(self)

    @cached_property
    def top_tokens(self) -> pd.DataFrame:
        """Table ``top_tokens``: a row for each token, or pair of tokens, that a head favours."""
        return token_tables.TOP_TOKENS.build(self)

    @cached_property
    def class_flows(self) -> pd.DataFrame:
        """Table ``class_flows``: a row for each head and pair of classes of words."""
        return token_tables.CLASS_FLOWS.build(self)

    @cached_property
    def importance(self) -> pd.DataFrame:
        """Table ``importance``: a row for each effect or estimate of ablating a head."""
        return ablation_tables.HEAD_IMPORTANCE.build(self)

    @cached_property
    def head_groups(self) -> pd.DataFrame:
        """Table ``head_groups``: a row for each ablated group or pair of heads."""
        return ablation_tables.HEAD_GROUPS.build(self)

    @cached_property
    def pruning(self) -> pd.DataFrame:
        """Table ``pruning``: a row for each share of heads ablated in an order."""
        return ablation_tables.PRUNING.build(self)

    @cached_property
    def effect_tokens(self) -> pd.DataFrame:
        """Table ``effect_tokens``: a row for each token that ablating a head changes most."""
        return ablation_tables.EFFECT_TOKENS.build(self)

    @property
    def composition(self) -> pd.DataFrame:
        """Table ``composition``: a row for each pair of heads whose weights fit together."""
        return COMPOSITION.build(self)

    @property
    def promoted_tokens(self) -> pd.DataFrame:
        """Table ``promoted_tokens``: a row for each token that a head promotes or suppresses."""
        return PROMOTED_TOKENS.build(self)

    @property
    def exemplar_tokens(self) -> pd.DataFrame:
        """Table ``exemplar_tokens``: a row for each token that a head promotes at an exemplar."""
        return EXEMPLAR_TOKENS.build(self)

    @cached_property
    def task_facets(self) -> pd.DataFrame:
        """Table ``task_facets``: a row for each head, target of a task and group of texts."""
        return ablation_tables.TASK_FACETS.build(self)

    @property
    def tokens(self) -> pd.DataFrame:
        """Table ``tokens``: a row for each number of a token of a sentence with a page."""
        return token_tables.TOKENS.build(self)

    @property
    def nearest(self) -> pd.DataFrame:
        """Table ``nearest``: a row for each nearest vocabulary token of a token's state."""
        return token_tables.NEAREST.build(self)

    @property
    def token_sums(self) -> list[Mapping[str, TokenSums]]:
        """Sums of token metrics by stack: of all sentences, of the sample, and of flows."""
        return [self.corpus_sums.tokens, self.corpus_sums.vocabulary, self.corpus_sums.flows]

    @property
    def attention_layers(self) -> dict[str, tuple[int, ...]]:
        """Layers with attention, by stack."""
        return {stack.name: stack.attention_layers for stack in self.manifest.stacks}

    def save(self, folder: str | Path, *, force: bool = False) -> None:
        """Write the study into a new folder.

        Raises:
            OutputError: the folder may not be replaced, or cannot be written.
        """
        with replace_folder(Path(folder), OutputKind.STUDY, force=force) as draft:
            parts = (
                self.corpus_sums,
                self.sentence_data,
                self.baselines,
                self.sampled,
                self.map_sample,
                self.circuits,
            )
            storage.save_study(draft, self.manifest, storage.StoredParts(*parts))

    @classmethod
    def load(cls, folder: str | Path) -> "Study":
        """Read a study from a folder of `save`.

        Raises:
            StudyError: the folder holds no study, or one that cannot be read.
        """
        manifest, parts = storage.load_study(Path(folder))
        return cls(manifest, **vars(parts))

    def __add__(self, other: "Study") -> "Study":
        """Return the study of both corpora, the sentences of this study first.

        Raises:
            StudyError: the studies were not made in the same way.
        """
        check_compatible(self, other)
        shift = self.manifest.places
        corpus_sums = self.corpus_sums + other.corpus_sums.shifted(shift)
        if not (self.corpus_sums.token_buckets and other.corpus_sums.token_buckets):
            # Studies of an earlier version have no token buckets or flows between classes: the sums
            # of the other study alone would be of half the sentences.
            corpus_sums = replace(corpus_sums, token_buckets={})
        if not (self.corpus_sums.class_flows and other.corpus_sums.class_flows):
            corpus_sums = replace(corpus_sums, class_flows={})
        sentence_data = self.sentence_data + other.sentence_data.shifted(shift)
        manifest = _merge_manifests(self.manifest, other.manifest)
        if len(self.circuits.numbers) or len(other.circuits.numbers):
            manifest = replace(manifest, gaps=(*manifest.gaps, MERGED_CIRCUITS))
        return Study(
            manifest=manifest,
            corpus_sums=corpus_sums,
            baselines={
                baseline_run: {
                    stack: table + other.baselines[baseline_run][stack]
                    for stack, table in by_stack.items()
                }
                for baseline_run, by_stack in self.baselines.items()
            },
            map_sample=self.map_sample + other.map_sample.shifted(shift),
            sentence_data=replace(
                sentence_data, exemplars=_choose_again(corpus_sums, sentence_data)
            ).sorted(),
        )


def merge_studies(folders: Sequence[str | Path]) -> Study:
    """Merge stored studies in the order of their folders; two are in memory at a time.

    Raises:
        StudyError: there are fewer than two studies, a study cannot be read, or they were not made
            in the same way.
    """
    if len(folders) < 2:
        number = f"{len(folders)} {'study' if len(folders) == 1 else 'studies'}"
        raise StudyError(f"merge: got {number}, expected two or more")
    merged, seen_folders = Study.load(folders[0]), {Path(folders[0]).resolve()}
    for folder in folders[1:]:
        if Path(folder).resolve() in seen_folders:
            raise StudyError(f"{folder}: got this study twice, expected each study once")
        seen_folders.add(Path(folder).resolve())
        part = Study.load(folder)
        try:
            merged += part
        except StudyError as error:
            raise StudyError(f"{folders[0]} and {folder}: {error}") from error
    return merged


def sampled_tables(corpus_sums: CorpusSums) -> dict[str, HeadTable]:
    """Return the sampled metrics by stack, each computed from all sampled sentences."""
    return {stack: finish_sampled(sums) for stack, sums in corpus_sums.sampled.items()}


def head_tables(
    corpus_sums: CorpusSums, sampled: Mapping[str, HeadTable] | None = None
) -> dict[str, HeadTable]:
    """Return all head metrics by stack: of all sentences, of the sample, of random sequences.

    Args:
        sampled: sampled metrics by stack, if known.
    """
    if sampled is None:
        sampled = sampled_tables(corpus_sums)
    joined = {}
    for stack, sums in corpus_sums.heads.items():
        tables = [sums.table]
        if stack in sampled:
            tables.append(sampled[stack])
        if stack in corpus_sums.head_outputs:
            tables.append(corpus_sums.head_outputs[stack])
        if stack in corpus_sums.random:
            tables.append(corpus_sums.random[stack])
        joined[stack] = join_columns(tables)
    return joined


def _merge_manifests(first: Manifest, second: Manifest) -> Manifest:
    """Return the manifest of a merged study: that of the first study, with sums of both."""
    return replace(
        first,
        inputs=first.inputs + second.inputs,
        counts=dict(Counter(first.counts) + Counter(second.counts)),
        checks=_merge_checks(first, second),
        checked_sentences=first.checked_sentences + second.checked_sentences,
        gaps=tuple(dict.fromkeys(first.gaps + second.gaps)),
        roundings=_merge_roundings(first.roundings + second.roundings),
        not_measured=first.not_measured + second.not_measured,
        fallbacks=first.fallbacks + second.fallbacks,
        packages={**first.packages, **second.packages},
    )


def _merge_checks(first: Manifest, second: Manifest) -> tuple[Check, ...]:
    """Return the checks of both manifests, each with the larger error; NaN counts as larger."""
    checks: dict[tuple[str, str], Check] = {}
    for check in first.checks + second.checks:
        known = checks.setdefault((check.name, check.stack), check)
        checks[check.name, check.stack] = replace(
            known,
            error=float(np.maximum(known.error, check.error)),
            tolerance=min(known.tolerance, check.tolerance),
        )
    return tuple(checks.values())


def _merge_roundings(roundings: Iterable[Rounding]) -> tuple[Rounding, ...]:
    """Add roundings of the same side and space."""
    merged: dict[tuple[str, str], Rounding] = {}
    for rounding in roundings:
        key = rounding.side, rounding.space
        merged[key] = merged[key] + rounding if key in merged else rounding
    return tuple(merged.values())


def _choose_again(corpus_sums: CorpusSums, sentence_data: SentenceData) -> tuple[Exemplar, ...]:
    """Choose the exemplars of a merged study among those whose maps are stored."""
    stored = {(exemplar.head, exemplar.index): exemplar for exemplar in sentence_data.exemplars}
    candidates: dict[HeadName, set[int]] = {}
    for head, index in stored:
        candidates.setdefault(head, set()).add(index)
    return tuple(
        replace(
            stored[choice.head, choice.index],
            ranking=choice.ranking,
            rank=choice.rank,
            score=choice.score,
        )
        for choice in choose_exemplars(corpus_sums, candidates)
        if (choice.head, choice.index) in stored
    )
