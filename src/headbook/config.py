"""Options of a run with default, help, group and check."""

import dataclasses
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from headbook import option_values
from headbook.config_checks import check_options
from headbook.config_files import check_known, converted_value, read_toml
from headbook.errors import ConfigError
from headbook.languages import language_of
from headbook.option_values import (
    DEVICES,
    DTYPES,
    OFFLOADS,
    PRECISIONS,
    QUANTIZATIONS,
    TASKS,
    OptionGroup,
)
from headbook.options import Options
from headbook.python_options import OPTIONS, names_arguments
from headbook.schema import Baseline, Side

FACETS = ("label", "language", "genre", "split")  # columns that group sentences by default
LOADING = (
    "revision", "tokenizer", "source_lang", "target_lang", "dtype", "adapter", "merge_adapter",
    "quantization", "trust_remote_code", "verbose",
)  # fmt: skip
SITE_QUERY_KEY_BYTES = 5_000_000  # of queries and keys on a site, by default
DEMO_OUT = "site"  # default folder of the demo
SUPPLEMENT = "supplement.zip"  # default file of a packed archive
REPORT = "report.html"  # default file of a site packed into one page
INDENTS: Final[dict[str, Any]] = {"initial_indent": "    ", "subsequent_indent": "        "}


def option(
    group: OptionGroup, default: Any, text: str, *flags: str, common: bool = False,
    place: bool = False,
) -> Any:  # fmt: skip
    """Declare an option: its group, its default, its help and its short flags.

    Args:
        common: whether the option is among the most used, which help shows first.
        place: whether the option only decides where files are, how the machine is used or what
            is printed. A study does not record such an option, since no number depends on it.
    """
    metadata = {"help": text, "flags": flags, "group": group, "common": common, "place": place}
    return field(default=default, metadata=metadata)


input_option = partial(option, OptionGroup.INPUT)
model_option = partial(option, OptionGroup.MODEL)
measured_option = partial(option, OptionGroup.MEASURED)
pages_option = partial(option, OptionGroup.PAGES)
speed_option = partial(option, OptionGroup.SPEED)
output_option = partial(option, OptionGroup.OUTPUT)


@dataclass(frozen=True, kw_only=True)
class Config:
    """All options of a run: what is computed and how pages show it.

    Raises:
        ConfigError: a value is not one that its option accepts.
    """

    model: str = model_option(
        "demo",
        "Hub id, local folder or GGUF file of the model, 'demo' or 'demo-causal'.",
        "-m",
        common=True,
    )
    revision: str | None = model_option(None, "Branch, tag or commit of a hub model.")
    tokenizer: str | None = model_option(
        None, "Hub id or local folder of another tokenizer than the model's own."
    )
    source_lang: str | None = model_option(
        None,
        "Language of the sources, as a code of a multilingual tokenizer such as that of NLLB: "
        "'eng_Latn'.",
    )
    target_lang: str | None = model_option(
        None, "Language of the targets, as a code of a multilingual tokenizer: 'fra_Latn'."
    )
    adapter: str | None = model_option(
        None, "Local folder or hub id of a peft adapter, such as LoRA, for the model; needs peft."
    )
    merge_adapter: bool = model_option(
        False, "Merge the adapter into the weights, instead of running it beside them."
    )
    quantization: str = model_option(
        "none",
        f"Quantise the weights of linear maps while they are loaded: {', '.join(QUANTIZATIONS)}. "
        "Needs torchao, or bitsandbytes on a GPU.",
    )
    trust_remote_code: bool = model_option(
        False,
        "Run code of the model's repository, for architectures that transformers lacks. The code "
        "can do anything on this machine.",
    )
    limit: int | None = input_option(
        None,
        "Number of sentences to take from the beginning of the input; later ones are not read. "
        "Intervals are then about text like this beginning; --sample takes from all of the input.",
        common=True,
    )
    sample: int | None = input_option(
        None,
        "Number of sentences to sample: those with the smallest hashes of their content, which "
        "do not depend on the order of the input.",
    )
    text_column: str | None = input_option(
        None,
        "Column of the text in tables and datasets. Default: 'text', or 'source' and 'target'.",
    )
    pair_column: str | None = input_option(
        None,
        "Column of the second text of a pair, which encoders read together with the first. "
        "Default: 'text_pair' beside 'text', 'hypothesis' beside 'premise', and the like.",
    )
    subset: str | None = input_option(None, "Subset of a Hugging Face dataset that has several.")
    split: str | None = input_option(
        None, "Split of a Hugging Face dataset. Default: 'train', or the only one."
    )
    title: str | None = pages_option(None, "Title of the site.", common=True)
    author: str | None = pages_option(
        None,
        "Author of the site, for its citation, as in BibTeX: 'Lovelace, Ada and Babbage, Charles'.",
        place=True,
    )
    text_source: str | None = pages_option(
        None, "Origin of the texts, such as a corpus with its version.", place=True
    )
    text_license: str | None = pages_option(
        None, "Licence of the texts, such as 'CC BY-SA 4.0'.", place=True
    )
    notes: Path | None = pages_option(
        None,
        "Your own text: Markdown for the overview, or TOML with pages, heads and names of heads.",
        place=True,
    )
    section: tuple[Path, ...] = pages_option(
        (),
        "Markdown file of a page of your own, titled by its first heading. May be repeated.",
        place=True,
    )
    annotator: str = input_option(
        option_values.AUTO_ANNOTATOR,
        "spaCy pipeline for words, parts of speech and dependencies: an installed name, a folder, "
        "'embedded' (English) or 'none' (words only); 'auto': the embedded one for English texts. "
        "CoNLL-U files have their own annotation.",
    )
    target_annotator: str = input_option(
        option_values.AUTO_ANNOTATOR,
        "spaCy pipeline for the target side of pairs; 'auto': the embedded one with "
        "--target-language en.",
    )
    language: str | None = input_option(
        None,
        "Language of the texts, for word frequencies and the annotator: a code such as 'en'; of a "
        "language that wordfreq lacks, words are counted in the input; 'none' leaves rare words "
        "out. Default: that of --source-lang, or 'en' if the texts seem English.",
        common=True,
    )
    target_language: str | None = input_option(
        None,
        "Language of the target side of source-target pairs, for the same. Default: that of "
        "--target-lang, or 'none'.",
    )
    device: str = speed_option(
        "auto",
        f"Device that runs the model: {', '.join(DEVICES)}; several, such as cuda:0,cuda:1, get a "
        "worker each.",
        common=True,
    )
    dtype: str = model_option("float32", f"Number format of the weights: {', '.join(DTYPES)}.")
    offload: str = speed_option(
        "off",
        f"Place of weights for which the device has no memory: {', '.join(OFFLOADS)}. auto fills "
        "the device, then memory, then the disk; disk keeps all layers on the disk until they run. "
        "Slow; needs accelerate.",
        place=True,
    )
    batch_tokens: int = speed_option(2048, "Largest number of tokens in a batch, padding included.")
    max_length: int | None = input_option(
        None,
        "Longest sequence in tokens; longer ones are cut. Default: the limit of the model, "
        "at most 512.",
    )
    pack: int | None = input_option(
        None,
        "Join consecutive sentences of a document into passages of at most this number of tokens, "
        "with the model's separator between sentences.",
    )
    exemplars: int = pages_option(
        5, "Number of exemplars, the sentences with the largest weights, on a head page."
    )
    sentence_pages: str = pages_option(
        "50",
        "Number of sentences with a page that has the maps of all heads, or 'all': one half are "
        "the first sentences, the other half are exemplars of the most heads. Other exemplars get "
        "a page with the maps of the heads that cite them.",
        common=True,
    )
    query_key_sentences: int | None = pages_option(
        None,
        "Number of sentences with pages, from the first on, whose query and key vectors are stored "
        "to show how each weight is computed; vectors over 16 MB per attention type are left out. "
        "Default: as many as fit into 5 MB of the site.",
    )
    vocabulary_sentences: int = measured_option(
        100,
        "Number of sentences, sampled by a hash of their content, for means of vocabulary ranks.",
    )
    vocabulary_precision: str = speed_option(
        "float32",
        f"Number format of the product of states and vocabulary: {', '.join(PRECISIONS)}. Faster "
        "on some devices; its effect on ranks is measured and printed. With --dtype float64 it "
        "stays float64.",
    )
    sample_sentences: int = measured_option(
        200,
        "Number of sentences, sampled by a hash of their content, for metrics that need several "
        "passes or all pairs of heads.",
    )
    importance: str = measured_option(
        "auto",
        "Ablate heads: off; auto (every head, or as many as 200 forward passes over a sample "
        "allow, with estimates of the rest; each layer; the sink heads and those of the same keys "
        "beside 20 random sets; and growing sets of heads beside 5 random orders); or full (every "
        "head with several replacements, groups beside 100 random sets, pairs, and finer pruning "
        "curves).",
        common=True,
    )
    importance_sentences: int = measured_option(
        100, "Number of sentences, sampled by a hash of their content, for ablations."
    )
    circuits: str = measured_option(
        "on",
        "What heads read and write, on or off: copying, composition, promoted tokens; for sentence "
        "encoders the words to which each head, replaced on the sample, moves the vector.",
    )
    margin: float | None = measured_option(
        None,
        "Smallest change by an ablation for which a sentence counts as changed: 1 minus a cosine, "
        "or nats per token. Default: 1 % of the mean distance between two sentences or 0.5 % of "
        "the loss, but at least 10 times what bfloat16 changes. Tasks keep their own.",
    )
    task: str = measured_option(
        "auto",
        f"Tasks on which heads are ablated as well, with commas: {', '.join(TASKS)}; 'auto': those "
        "that the model has a head and the input columns for; or 'none'.",
    )
    label_column: str = input_option("label", "Column with the true labels of texts or tokens.")
    acceptable: str | None = input_option(
        None,
        "Value of the acceptable sentence of a minimal pair, in the column 'acceptable' or else "
        f"that of labels. Default: {', '.join(option_values.ACCEPTABLE)}.",
    )
    metrics: str = measured_option(
        "all", "Metrics to compute, separated by commas, or 'all'.", common=True
    )
    facet: str = measured_option(
        "auto",
        "Metadata columns whose values group sentences, separated by commas; 'auto': those of "
        f"{', '.join(FACETS)} that have 2 to 12 values; or 'none'.",
    )
    pair_member: str | None = input_option(
        None,
        "Metadata column that distinguishes the two sentences of a pair_id. Default: a column "
        "whose two values do so in every pair, or else the order of the sentences.",
    )
    control: str = measured_option(
        "none",
        f"Controls to run as well, separated by commas: {', '.join(Baseline)} (the same "
        "architecture with random weights; the same words in random order; passages of --pack "
        "without separators between sentences); or 'none'.",
    )
    control_seeds: int = measured_option(
        3, "Number of models with random weights, 1 to 5; several give a band."
    )
    seed: int = measured_option(0, "Seed of all random numbers.")
    out: Path | None = output_option(
        None,
        f"Folder to write; for pack the file to write, by default {SUPPLEMENT} or {REPORT}.",
        "-o",
        common=True,
        place=True,
    )
    keep_study: Path | None = output_option(
        None,
        "Folder in which to keep the study, for the commands render, figures and pack.",
        place=True,
    )
    base_url: str | None = pages_option(
        None,
        "Address of the folder where the site will be published, such as "
        "https://somebody.github.io/heads/; adds a sitemap and full addresses for previews.",
        place=True,
    )
    memory: str | None = speed_option(
        None,
        "Memory for tables of all pairs of a text's tokens, such as '4GB'; longer texts have no "
        "pages and take no part in metrics of the sample. Texts of up to 512 tokens are always "
        "measured. Default: an eighth of the machine's memory.",
        place=True,
    )
    accept_failed_checks: bool = output_option(
        False,
        "End with exit code 0 instead of 3 after a failed self-check; the overview still names it.",
        place=True,
    )
    processes: int = speed_option(
        0,
        "Number of processes that render pages, each with the study in memory. 0: one process for "
        "every two cores, at most three, if there are many pages.",
        place=True,
    )
    workers: int = speed_option(
        1, "Number of processes that run the model, each with its own copy.", place=True
    )
    engine: str = speed_option(
        "local", "Engine that runs workers: local, or ray for a Ray cluster.", place=True
    )
    address: str | None = speed_option(
        None, "Address of a Ray cluster. Default: a cluster on this machine.", place=True
    )
    restart: bool = output_option(
        False, "Start from the beginning instead of resuming a stopped run.", place=True
    )
    force: bool = output_option(
        False,
        "Replace an existing folder that holds only files of Headbook.",
        "-f",
        common=True,
        place=True,
    )
    open: bool = output_option(False, "Open the site in the browser when it is done.", place=True)
    quiet: bool = output_option(False, "Print errors only.", "-q", place=True)
    verbose: bool = output_option(
        False, "Print messages of libraries, and the traceback of a bug.", "-v", place=True
    )

    @names_arguments
    def __post_init__(self) -> None:
        """Convert the values to their types and check them."""
        for option_field in dataclasses.fields(self):
            self._convert(option_field)
        check_options(self)

    def _convert(self, option_field: "dataclasses.Field[Any]") -> None:
        """Convert the value of one option to the option's type."""
        value = getattr(self, option_field.name)
        try:
            converted = converted_value(option_field, value)
        except ValueError as error:
            raise ConfigError(
                f"{option_values.flag(option_field.name)}: got {value!r:.100}, expected {error}"
            ) from error
        object.__setattr__(self, option_field.name, converted)

    @property
    def query_key_bytes(self) -> float:
        """Bytes that queries and keys may take on the site; infinite if sentences are counted."""
        return SITE_QUERY_KEY_BYTES if self.query_key_sentences is None else float("inf")

    @property
    def n_sentence_pages(self) -> float:
        """Number of sentences that get a page; infinite for 'all'."""
        return float("inf") if self.sentence_pages == "all" else int(self.sentence_pages)

    @property
    def languages(self) -> dict[Side, str]:
        """Language of each side, also from the code of a tokenizer; empty if not given."""
        given = {
            Side.SOURCE: (self.language, self.source_lang),
            Side.TARGET: (self.target_language, self.target_lang),
        }
        return {
            side: language or (language_of(code) if code else "")
            for side, (language, code) in given.items()
        }

    @property
    def memory_bytes(self) -> float | None:
        """Bytes that the tables of one text may take; None without ``--memory``."""
        match = option_values.SIZE_PATTERN.fullmatch(self.memory or "")
        return float(match[1]) * option_values.UNIT_BYTES[match[2].lower()] if match else None

    @property
    def devices(self) -> tuple[str, ...]:
        """Devices that run the model; the first one belongs to the main process."""
        return tuple(self.device.split(","))

    @property
    def n_workers(self) -> int:
        """Number of processes that run the model over the corpus."""
        return max(self.workers, len(self.devices))

    @property
    def shared(self) -> bool:
        """Whether other processes than this one run the model over the corpus."""
        return self.n_workers > 1 or self.engine != "local"

    @property
    def loading(self) -> dict[str, Any]:
        """Options that decide how a model is loaded, as arguments of ``load_model``."""
        return {name: getattr(self, name) for name in LOADING}

    def recorded(self) -> dict[str, Any]:
        """Return the options that decide the numbers and the pages, for the manifest."""
        values = dataclasses.asdict(self)
        return {f.name: values[f.name] for f in dataclasses.fields(self) if not f.metadata["place"]}

    @classmethod
    def of(cls, file: Path | None = None, **options: Any) -> Self:
        """Combine a configuration file and given options; given options win.

        Args:
            file: a TOML file whose keys are option names, with ``-`` or ``_``; or None.
            options: options by name; None means "not given".

        Raises:
            ConfigError: the file cannot be read, or it or ``options`` holds an unknown name or a
                value that does not fit.
        """
        fields = {option_field.name: option_field for option_field in dataclasses.fields(cls)}
        values = {} if file is None else read_toml(file, fields)
        for name in options:
            check_known(name, fields)
        return cls(**(values | {k: v for k, v in options.items() if v is not None}))


OPTIONS.update({field.name: field.type is bool for field in dataclasses.fields(Config)})
Function = TypeVar("Function", bound=Callable[..., Any])


def lists_options(function: Function) -> Function:
    """Add every option by its group, with default and explanation, to a function's docstring."""
    groups: dict[str, list[str]] = {str(group): [] for group in OptionGroup}
    for option_field in dataclasses.fields(Config):
        if option_field.name in Options.__annotations__:
            line = f"{option_field.name}={option_field.default!r}: {option_field.metadata['help']}"
            groups[option_field.metadata["group"]].append(textwrap.fill(line, 96, **INDENTS))
    listed = "".join(
        f"\n\n{group}:\n" + "\n".join(lines) for group, lines in groups.items() if lines
    )
    function.__doc__ = inspect.cleandoc(function.__doc__ or "") + listed + "\n"
    return function
