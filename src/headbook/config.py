"""Options of a run with default, help and check, and their reading from a configuration file."""

import dataclasses
import difflib
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from headbook import option_values
from headbook.config_checks import check_options
from headbook.errors import ConfigError
from headbook.option_values import DEVICES, DTYPES, OFFLOADS, PRECISIONS, QUANTIZATIONS, TASKS
from headbook.schema import Baseline

FACETS = ("label", "language", "genre", "split")  # columns that group sentences by default
LOADING = (
    "revision", "tokenizer", "dtype", "adapter", "merge_adapter", "quantization",
    "trust_remote_code", "verbose",
)  # fmt: skip
DEMO_OUT = "site"  # default folder of the demo
SUPPLEMENT = "supplement.zip"  # default file of a packed archive
REPORT = "report.html"  # default file of a site packed into one page


def option(default: Any, text: str, *flags: str, place: bool = False) -> Any:
    """Declare an option: its default, its help and its short flags.

    Args:
        place: whether the option only decides where files are, how the machine is used or what
            is printed. A study does not record such an option, since no number depends on it.
    """
    return field(default=default, metadata={"help": text, "flags": flags, "place": place})


@dataclass(frozen=True, kw_only=True)
class Config:
    """All options of a run: what is computed and how pages show it.

    Raises:
        ConfigError: a value is not one that its option accepts.
    """

    model: str = option(
        "demo", "Hub id, local folder or GGUF file of the model, 'demo' or 'demo-causal'.", "-m"
    )
    revision: str | None = option(None, "Branch, tag or commit of a hub model.")
    tokenizer: str | None = option(
        None, "Hub id or local folder of another tokenizer than the model's own."
    )
    adapter: str | None = option(
        None, "Local folder or hub id of a peft adapter, such as LoRA, for the model; needs peft."
    )
    merge_adapter: bool = option(
        False, "Merge the adapter into the weights, instead of running it beside them."
    )
    quantization: str = option(
        "none",
        f"Quantise the weights of linear maps while they are loaded: {', '.join(QUANTIZATIONS)}. "
        "Needs torchao, or bitsandbytes on a GPU.",
    )
    trust_remote_code: bool = option(
        False,
        "Run code of the model's repository, for architectures that transformers lacks. The code "
        "can do anything on this machine.",
    )
    limit: int | None = option(
        None,
        "Number of sentences to take from the beginning of the input; later ones are not read.",
    )
    sample: int | None = option(
        None,
        "Number of sentences to sample: those with the smallest hashes of their content, which "
        "do not depend on the order of the input.",
    )
    text_column: str | None = option(
        None,
        "Column of the text in tables and datasets. Default: 'text', or 'source' and 'target'.",
    )
    subset: str | None = option(None, "Subset of a Hugging Face dataset that has several.")
    split: str | None = option(
        None, "Split of a Hugging Face dataset. Default: 'train', or the only one."
    )
    title: str | None = option(None, "Title of the site.")
    notes: Path | None = option(
        None,
        "Your own text: Markdown for the overview, or TOML with pages, heads and names of heads.",
        place=True,
    )
    section: tuple[Path, ...] = option(
        (),
        "Markdown file of a page of your own, titled by its first heading. May be repeated.",
        place=True,
    )
    annotator: str = option(
        "embedded",
        "spaCy pipeline for words, parts of speech and dependencies: an installed name, a folder, "
        "'embedded' (English) or 'none' (words only). CoNLL-U files have their own annotation.",
    )
    target_annotator: str = option(
        "none",
        "spaCy pipeline for the target side of pairs, which is often in another language.",
    )
    language: str = option(
        "en",
        "Language of the texts, for word frequencies: a code that wordfreq has, such as "
        "'en'; any other code counts words in the input itself; 'none' leaves rare words out.",
    )
    target_language: str = option(
        "none", "Language of the target side of source-target pairs, for word frequencies."
    )
    device: str = option(
        "auto",
        f"Device that runs the model: {', '.join(DEVICES)}; several, such as cuda:0,cuda:1, get a "
        "worker each.",
    )
    dtype: str = option("float32", f"Number format of the weights: {', '.join(DTYPES)}.")
    offload: str = option(
        "off",
        f"Place of weights for which the device has no memory: {', '.join(OFFLOADS)}. auto fills "
        "the device, then memory, then the disk; disk keeps all layers on the disk until they run. "
        "Slow; needs accelerate.",
        place=True,
    )
    batch_tokens: int = option(2048, "Largest number of tokens in a batch, padding included.")
    max_length: int | None = option(
        None,
        "Longest sequence in tokens; longer ones are cut. Default: the limit of the model, "
        "at most 512.",
    )
    pack: int | None = option(
        None,
        "Join consecutive sentences of a document into passages of at most this number of tokens, "
        "with the model's separator between sentences.",
    )
    exemplars: int = option(
        5, "Number of exemplars, the sentences with the largest weights, on a head page."
    )
    sentence_pages: str = option(
        "50",
        "Number of sentences with a page that has the maps of all heads, or 'all': one half are "
        "the first sentences, the other half are exemplars of the most heads. Other exemplars get "
        "a page with the maps of the heads that cite them.",
    )
    query_key_sentences: int = option(
        2,
        "Number of sentences with pages, from the first on, whose query and key vectors are stored "
        "to show how each weight is computed; vectors over 16 MB per attention type are left out.",
    )
    vocabulary_sentences: int = option(
        100,
        "Number of sentences, sampled by a hash of their content, for means of vocabulary ranks.",
    )
    vocabulary_precision: str = option(
        "float32",
        f"Number format of the product of states and vocabulary: {', '.join(PRECISIONS)}. Faster "
        "on some devices; its effect on ranks is measured and printed. With --dtype float64 it "
        "stays float64.",
    )
    sample_sentences: int = option(
        200,
        "Number of sentences, sampled by a hash of their content, for metrics that need several "
        "passes or all pairs of heads.",
    )
    importance: str = option(
        "fast",
        "Ablate heads: off; fast (estimates for all heads, exact effects of the 20 with the "
        "largest estimates and of 20 others in at most 40 forward passes over a sample, of each "
        "layer, and of the sink heads beside 20 random sets); or full (exact effects of every "
        "head, groups beside 100 random sets, and pruning curves).",
    )
    importance_sentences: int = option(
        100, "Number of sentences, sampled by a hash of their content, for ablations."
    )
    circuits: str = option(
        "on",
        "What heads read and write, on or off: copying, composition, promoted tokens; for sentence "
        "encoders the words to which each head, replaced on the sample, moves the vector.",
    )
    margin: float | None = option(
        None,
        "Smallest change by an ablation for which a sentence counts as changed: 1 minus a cosine, "
        "or nats per token. Default: 1 % of the mean distance between two sentences or 0.5 % of "
        "the loss, but at least 10 times what bfloat16 changes. Tasks keep their own.",
    )
    task: str = option(
        "auto",
        f"Tasks on which heads are ablated as well, with commas: {', '.join(TASKS)}; 'auto': those "
        "that the model has a head and the input columns for; or 'none'.",
    )
    label_column: str = option("label", "Column with the true labels of texts or tokens.")
    acceptable: str | None = option(
        None,
        "Value of the acceptable sentence of a minimal pair, in the column 'acceptable' or else "
        f"that of labels. Default: {', '.join(option_values.ACCEPTABLE)}.",
    )
    metrics: str = option("all", "Metrics to compute, separated by commas, or 'all'.")
    facet: str = option(
        "auto",
        "Metadata columns whose values group sentences, separated by commas; 'auto': those of "
        f"{', '.join(FACETS)} that have 2 to 12 values; or 'none'.",
    )
    pair_member: str | None = option(
        None,
        "Metadata column that distinguishes the two sentences of a pair_id. Default: a column "
        "whose two values do so in every pair, or else the order of the sentences.",
    )
    control: str = option(
        "none",
        f"Controls to run as well, separated by commas: {', '.join(Baseline)} (the same "
        "architecture with random weights; the same words in random order); or 'none'.",
    )
    control_seeds: int = option(
        3, "Number of models with random weights, 1 to 5; several give a band."
    )
    seed: int = option(0, "Seed of all random numbers.")
    out: Path | None = option(
        None,
        f"Folder to write; for pack the file to write, by default {SUPPLEMENT} or {REPORT}.",
        "-o",
        place=True,
    )
    keep_study: Path | None = option(
        None,
        "Folder in which to keep the study, for the commands render, figures and pack.",
        place=True,
    )
    base_url: str | None = option(
        None,
        "Address of the folder where the site will be published, such as "
        "https://somebody.github.io/heads/; adds a sitemap and full addresses for previews.",
        place=True,
    )
    memory: str | None = option(
        None,
        "Memory for tables of all pairs of a text's tokens, such as '4GB'; longer texts have no "
        "pages and take no part in metrics of the sample. Texts of up to 512 tokens are always "
        "measured. Default: an eighth of the machine's memory.",
        place=True,
    )
    accept_failed_checks: bool = option(
        False,
        "End with exit code 0 instead of 3 after a failed self-check; the overview still names it.",
        place=True,
    )
    processes: int = option(
        0,
        "Number of processes that render pages, each with the study in memory. 0: one process for "
        "every two cores, at most three, if there are many pages.",
        place=True,
    )
    workers: int = option(
        1, "Number of processes that run the model, each with its own copy.", place=True
    )
    engine: str = option(
        "local", "Engine that runs workers: local, or ray for a Ray cluster.", place=True
    )
    address: str | None = option(
        None, "Address of a Ray cluster. Default: a cluster on this machine.", place=True
    )
    restart: bool = option(
        False, "Start from the beginning instead of resuming a stopped run.", place=True
    )
    force: bool = option(
        False, "Replace an existing folder that holds only files of Headbook.", "-f", place=True
    )
    open: bool = option(False, "Open the site in the browser when it is done.", place=True)
    quiet: bool = option(False, "Print errors only.", "-q", place=True)
    verbose: bool = option(
        False, "Print messages of libraries, and the traceback of a bug.", "-v", place=True
    )

    def __post_init__(self) -> None:
        """Convert the values to their types and check them."""
        for option_field in dataclasses.fields(self):
            self._convert(option_field)
        check_options(self)

    def _convert(self, option_field: "dataclasses.Field[Any]") -> None:
        """Convert the value of one option to the option's type."""
        value = getattr(self, option_field.name)
        try:
            converted = _converted(option_field, value)
        except ValueError as error:
            raise ConfigError(
                f"{option_values.flag(option_field.name)}: got {value!r:.100}, expected {error}"
            ) from error
        object.__setattr__(self, option_field.name, converted)

    @property
    def n_sentence_pages(self) -> float:
        """Number of sentences that get a page; infinite for 'all'."""
        return float("inf") if self.sentence_pages == "all" else int(self.sentence_pages)

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
        values = {} if file is None else read_toml(file)
        for name in options:
            _check_known(name, "")
        return cls(**(values | {k: v for k, v in options.items() if v is not None}))


def read_toml(file: Path) -> dict[str, Any]:
    """Read options from a TOML file.

    Raises:
        ConfigError: the file cannot be read or holds an unknown or unsuitable option; the message
            gives the file and, if known, the line or the key.
    """
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"{file.name}: {option_values.read_failure(error)}; expected a TOML file of options"
        ) from error
    return dict(_option_of_key(file, key, value) for key, value in table.items())


def _option_of_key(file: Path, key: str, value: object) -> tuple[str, object]:
    """Return the name and the converted value of an option from a key of a configuration file."""
    fields = {option_field.name: option_field for option_field in dataclasses.fields(Config)}
    name = key.replace("-", "_")
    _check_known(name, f"{file.name}: ", key)
    try:
        value = _converted(fields[name], value)
    except ValueError as error:
        raise ConfigError(f"{file.name}: {key}: got {value!r:.100}, expected {error}") from error
    if isinstance(value, Path):
        value = file.parent / value  # paths are relative to the file that names them
    elif isinstance(value, tuple):
        value = tuple(file.parent / part for part in value)
    return name, value


def _check_known(name: str, prefix: str, written: str | None = None) -> None:
    """Raise an error if no option has this name.

    Args:
        prefix: source of the name, such as the file, which begins the message.
        written: spelling of the name in that source.
    """
    names = [f.name for f in dataclasses.fields(Config)]
    if name not in names:
        similar = difflib.get_close_matches(name, names, n=1)
        hint = f"; did you mean '{similar[0]}'?" if similar else f"; options are {', '.join(names)}"
        raise ConfigError(f"{prefix}unknown option '{written or name}'{hint}")


def _converted(option_field: "dataclasses.Field[Any]", value: Any) -> Any:
    """Return a value converted to the type of its option.

    Raises:
        ValueError: the value does not fit; the message says what is expected.
    """
    is_seed = option_field.name == "seed"
    return option_values.option_value(
        option_field.type,
        value,
        accepts_list=option_field.name in option_values.LIST_OPTIONS,
        accepts_number=option_field.name in option_values.NUMBER_OR_WORD_OPTIONS,
        maximum=option_values.MAX_SEED if is_seed else option_values.MAX_WHOLE_NUMBER,
    )
