"""A study: manifest, sums and sentence data as one value that is saved, loaded and merged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self, overload

import numpy as np
import pandas as pd

from headbook.errors import StudyError
from headbook.output_folder import OutputKind, replace_folder
from headbook.python_options import names_arguments
from headbook.schema import BaselineRun, HeadName
from headbook.study import ablation_tables, merging, storage, tables, token_tables
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
from headbook.study.input_facts import some_names
from headbook.study.manifest import Manifest
from headbook.study.sentence_access import (
    AttentionWeights,
    ContextSimilarity,
    attention_weights,
    chosen_stack,
    context_similarity,
)
from headbook.study.sentence_data import Exemplar, MapSample, SentenceData

if TYPE_CHECKING:
    from headbook.notebook.views import NotebookView


PUBLIC = (
    "head", "sentence", "plot", "figures", "attention", "similarity", "heads", "functions",
    "layers", "controls", "compared", "tests", "pairs", "groups", "minimal_pairs", "top_tokens",
    "class_flows", "importance", "effect_tokens", "head_groups", "pruning", "task_facets",
    "composition", "promoted_tokens", "exemplar_tokens", "words", "types", "tokens", "nearest",
    "uses", "public_demo", "geometry", "outliers", "save", "load", "manifest",
)  # fmt: skip


class StudyTable:
    """Table as an attribute of a study, computed at its first use.

    Args:
        table: the table.
    """

    def __init__(self, table: "tables.TableSpec[Study]") -> None:
        self._table = table
        self.__doc__ = f"Table ``{table.name}``: {table.description}"

    @overload
    def __get__(self, study: None, owner: "type[Study]") -> Self: ...
    @overload
    def __get__(self, study: "Study", owner: "type[Study]") -> pd.DataFrame: ...
    def __get__(self, study: "Study | None", owner: "type[Study]") -> Self | pd.DataFrame:
        if study is None:
            return self
        table = self._table.build(study)
        vars(study)[self._name] = table  # where the next use finds it
        return table

    def __set_name__(self, owner: "type[Study]", name: str) -> None:
        """Remember the name of the attribute."""
        self._name = name


@dataclass(frozen=True, eq=False)
class Study:
    """All numbers of a model's attention and states on a corpus.

    | what one wants | names |
    |---|---|
    | displays, in notebooks and terminals | `head`, `sentence`, `plot`, `figures` |
    | arrays of one sentence | `attention`, `similarity` |
    | tables of heads | `heads`, `functions`, `layers`, `controls`, `compared`, `tests`, `pairs`,
      `groups`, `minimal_pairs`, `top_tokens`, `class_flows` |
    | tables of ablations | `importance`, `effect_tokens`, `head_groups`, `pruning`, `task_facets` |
    | tables of circuits | `composition`, `promoted_tokens`, `exemplar_tokens` |
    | tables of tokens and states | `words`, `types`, `tokens`, `nearest`, `uses`, `public_demo`,
      `geometry`, `outliers` |
    | files | `save`, `load`, `manifest` |

    Attributes:
        manifest: record of how the study was made.
        corpus_sums: sums over all sentences.
        sentence_data: data of single sentences for pages.
        baselines: numbers of heads of each baseline, by stack.
        stored_sampled: sampled metrics by stack, as read from a file; None before a study is saved
            and in merged studies.
        map_sample: attention maps by which models are compared.
        circuits: what heads read and write; empty in merged studies (`headbook.study.merging`).
    """

    manifest: Manifest
    corpus_sums: CorpusSums
    sentence_data: SentenceData
    baselines: Mapping[BaselineRun, Mapping[str, HeadTable]] = field(default_factory=dict)
    stored_sampled: Mapping[str, HeadTable] | None = None
    map_sample: MapSample = field(default_factory=MapSample)
    circuits: CircuitResults = field(default_factory=CircuitResults)

    heads = StudyTable(tables.HEADS)
    layers = StudyTable(tables.LAYERS)
    controls = StudyTable(tables.CONTROLS)
    compared = StudyTable(tables.COMPARED)
    pairs = StudyTable(tables.PAIRS)
    groups = StudyTable(tables.GROUPS)
    minimal_pairs = StudyTable(tables.MINIMAL_PAIRS)
    top_tokens = StudyTable(token_tables.TOP_TOKENS)
    class_flows = StudyTable(token_tables.CLASS_FLOWS)
    importance = StudyTable(ablation_tables.HEAD_IMPORTANCE)
    effect_tokens = StudyTable(ablation_tables.EFFECT_TOKENS)
    head_groups = StudyTable(ablation_tables.HEAD_GROUPS)
    pruning = StudyTable(ablation_tables.PRUNING)
    task_facets = StudyTable(ablation_tables.TASK_FACETS)
    composition = StudyTable(COMPOSITION)
    promoted_tokens = StudyTable(PROMOTED_TOKENS)
    exemplar_tokens = StudyTable(EXEMPLAR_TOKENS)
    words = StudyTable(token_tables.WORDS)
    types = StudyTable(token_tables.TYPES)
    tokens = StudyTable(token_tables.TOKENS)
    nearest = StudyTable(token_tables.NEAREST)
    uses = StudyTable(token_tables.USES)
    public_demo = StudyTable(token_tables.PUBLIC_DEMO)
    geometry = StudyTable(token_tables.GEOMETRY)
    outliers = StudyTable(token_tables.OUTLIER_TABLE)

    def __repr__(self) -> str:
        """Return lines on the model, the sentences, the making, cut texts, and merged parts."""
        manifest = self.manifest
        heads = ", ".join(
            f"{stack.name} {len(stack.attention_layers)} × {stack.n_heads} heads"
            for stack in manifest.stacks
        )
        merged = [f"merged of {manifest.parts:,} studies", *merging.merge_report(manifest)]
        return (
            f"Study of {manifest.model.name} ({manifest.model.kind}): {heads}\n"
            f"{manifest.counts['sentences']:,} {manifest.text_noun}s of "
            f"{some_names(manifest.inputs)}\n"
            f"collected {manifest.created or 'on an unknown date'} by Headbook "
            f"{manifest.headbook}, {manifest.model.dtype} on {manifest.model.device}"
            + "".join(f"\n{text}" for text in manifest.cut)
            + ("".join(f"\n{line}" for line in merged) if manifest.parts > 1 else "")
        )

    def __dir__(self) -> list[str]:
        """Return the public names, those of the class's table."""
        return sorted(PUBLIC)

    def __add__(self, other: object) -> NoReturn:
        """Refuse addition, which would not say that some of a merged study is missing.

        Raises:
            StudyError: always; the message names `merge`.
        """
        raise StudyError("study: got +, expected headbook.merge([a, b])")

    __radd__ = __add__

    def _repr_html_(self) -> str:
        """Return the overview as HTML, for notebooks: summary, claims, and the wall of heads."""
        from headbook.notebook.views import study_html  # noqa: PLC0415

        return study_html(self)

    @names_arguments
    def head(
        self, layer: int | str, head: int | None = None, stack: str | None = None
    ) -> "NotebookView":
        """Return the card of a head: mean map, function, exemplars, and effect.

        Args:
            layer: layer, counted from 0; or the name of a head, such as ``L2-H8``.
            head: head, counted from 0.
            stack: kind of attention: ``encoder``, ``decoder`` or ``cross``; the first by default.

        Raises:
            ConfigError: the study has no such head.
        """
        from headbook.notebook.views import head_view  # noqa: PLC0415

        return head_view(self, layer, head, stack)

    @names_arguments
    def sentence(self, index: int) -> "NotebookView":
        """Return the maps of all heads in a sentence; sentence 1 of the site has index 0.

        Raises:
            ConfigError: no maps are stored of such a sentence.
        """
        from headbook.notebook.views import sentence_view  # noqa: PLC0415

        return sentence_view(self, index)

    def attention(
        self, sentence: int, layer: int, head: int | None = None, stack: str | None = None
    ) -> AttentionWeights:
        """Return weights with the tokens of their queries and keys, as an array.

        ```python
        weights, queries, keys = study.attention(0, layer=1, head=2)
        ```

        Args:
            sentence: index of a sentence with a page; sentence 1 of the site has index 0.
            layer: layer, counted from 0.
            head: head, counted from 0; all heads of the layer by default.
            stack: kind of attention; the first by default.

        Raises:
            ConfigError: the sentence has no stored maps, or there is no such stack, layer or head.
        """
        chosen = chosen_stack(self.manifest.stacks, stack, "attention")
        return attention_weights(self.sentence_data, sentence, chosen, layer, head)

    def similarity(
        self,
        sentence: int,
        layer: int,
        head: int | None = None,
        stack: str | None = None,
        *,
        centred: bool = False,
    ) -> ContextSimilarity:
        """Return the cosine of the head outputs at every two tokens, as an array with the tokens.

        ```python
        cosines, tokens = study.similarity(0, layer=1, head=2)
        ```

        Args:
            sentence, layer, head, stack: as in `attention`.
            centred: whether to subtract the mean output of the sentence or passage first.

        Raises:
            ConfigError: the sentence has no stored outputs, or there is no such stack, layer or
                head.
        """
        chosen = chosen_stack(self.manifest.stacks, stack, "similarity")
        return context_similarity(
            self.sentence_data, sentence, chosen, layer, head, centred=centred
        )

    @property
    def figures(self) -> list[str]:
        """Names that `plot` takes: ids of metrics, and names of figures of the site."""
        from headbook.notebook.views import figure_names  # noqa: PLC0415

        return figure_names(self)

    @names_arguments
    def plot(
        self, name: str = "", stack: str | None = None, *, label: str = "", view: str = ""
    ) -> Any:
        """Return a chart of the site: an Altair chart, or a `NotebookView` if Altair has no such.

        Args:
            name: id of a metric, or name of a figure as `figures` lists it.
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
    def tests(self) -> pd.DataFrame:
        """Table ``tests``: a row for each claim of pages, with baseline, difference and p.

        Raises:
            StudyError: `headbook.report.tables`, which computes the table, was not imported.
        """
        return self._table_of_report("tests")

    @cached_property
    def functions(self) -> pd.DataFrame:
        """Table ``functions``: the function of each head, with the number that decided.

        Raises:
            StudyError: `headbook.report.tables`, which computes the table, was not imported.
        """
        return self._table_of_report("functions")

    def _table_of_report(self, name: str) -> pd.DataFrame:
        if name not in tables.TABLES_OF_REPORT:
            raise StudyError(f"study.{name}: import headbook.report.tables, or use headbook.Study")
        return tables.TABLES_OF_REPORT[name].build(self)

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

    @property
    def token_sums(self) -> list[Mapping[str, TokenSums]]:
        """Sums of token metrics by stack: of all sentences, of the sample, and of flows."""
        return [self.corpus_sums.tokens, self.corpus_sums.vocabulary, self.corpus_sums.flows]

    @property
    def attention_layers(self) -> dict[str, tuple[int, ...]]:
        """Layers with attention, by stack."""
        return {stack.name: stack.attention_layers for stack in self.manifest.stacks}

    @names_arguments
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
    @names_arguments
    def load(cls, folder: str | Path) -> "Study":
        """Read a study from a folder of `save`.

        Raises:
            StudyError: the folder holds no study, or one that cannot be read.
        """
        manifest, parts = storage.load_study(Path(folder))
        return cls(manifest, **vars(parts))

    def _merged_with(self, other: "Study") -> "Study":
        """Return the study of both corpora, the sentences of this study first.

        Raises:
            StudyError: the studies were not made in the same way.
        """
        check_compatible(self, other)
        shift = self.manifest.places
        of_other = other.corpus_sums.shifted(shift)
        corpus_sums, gaps = merging.merge_sums(self.corpus_sums, of_other)
        baselines, gaps_of_baselines = merging.merge_baselines(self.baselines, other.baselines)
        if len(self.circuits.numbers) or len(other.circuits.numbers):
            gaps.append(merging.CIRCUITS)
        sentence_data = self.sentence_data + other.sentence_data.shifted(shift)
        if len(sentence_data.uses):
            gaps.append(merging.USES)
            sentence_data = replace(sentence_data, uses=sentence_data.uses.iloc[:0])
        manifests = self.manifest, other.manifest
        manifest = merging.merge_manifests(*manifests)
        manifest = replace(
            manifest,
            gaps=tuple(dict.fromkeys((*manifest.gaps, *gaps, *gaps_of_baselines))),
            repeated=manifest.repeated + merging.repeated(self.corpus_sums, other.corpus_sums),
            pooled=merging.pooled(*manifests, corpus_sums, pages=len(sentence_data.listed)),
        )
        return Study(
            manifest=manifest,
            corpus_sums=corpus_sums,
            baselines=baselines,
            map_sample=self.map_sample + other.map_sample.shifted(shift),
            sentence_data=replace(
                sentence_data, exemplars=_choose_again(corpus_sums, sentence_data)
            ).sorted(),
        )


@names_arguments
def merge(studies: Sequence[Study | str | Path]) -> Study:
    """Return the study of all sentences of several studies, in the order given.

    ```python
    whole = headbook.merge([part_1, "studies/part-2"])
    ```

    Args:
        studies: studies, or the folders of stored ones, of which two are in memory at a time. What
            cannot be joined is missing in the merged study, with its reason.

    Raises:
        StudyError: there are fewer than two studies, a study cannot be read, or they were not made
            in the same way.
    """
    if not isinstance(studies, list | tuple) or len(studies) < 2:
        kind = f"{len(studies)}" if isinstance(studies, list | tuple) else type(studies).__name__
        raise StudyError(f"merge: got {kind}, expected a list of two or more studies or folders")
    folders = [Path(study).resolve() for study in studies if isinstance(study, str | Path)]
    for folder in folders:
        if folders.count(folder) > 1:
            raise StudyError(f"{folder}: got this study twice, expected each study once")
    merged = _study_of(studies[0])
    for place, study in enumerate(studies[1:], 2):
        part = _study_of(study)
        try:
            merged = merged._merged_with(part)  # noqa: SLF001 - of the same class
        except StudyError as error:
            first, other = (
                str(each) if isinstance(each, str | Path) else f"study {number}"
                for number, each in ((1, studies[0]), (place, study))
            )
            raise StudyError(f"{first} and {other}: {error}") from error
    return merged


def _study_of(study: Any) -> Study:
    """Return a study that is given as such or by its folder.

    Raises:
        StudyError: it is neither, or the folder has no study that can be read.
    """
    if isinstance(study, Study):
        return study
    if not isinstance(study, str | Path):
        kind = type(study).__name__
        raise StudyError(f"merge: got an object of type {kind}, expected a study or its folder")
    return Study.load(study)


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
