r"""Every option with default, help and check, from a file, the command line or Python.

Also the creation date that a study records.
"""

import dataclasses
import datetime as dt
import difflib
import os
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from headbook.errors import ConfigError
from headbook.option_values import MOST, option_value
from headbook.schema import Baseline

FACETS = ("label", "language", "genre", "split")  # columns that group sentences by default
DEVICES = ("auto", "cpu", "cuda", "mps")
DEVICE = re.compile(rf"{'|'.join(DEVICES)}|cuda:\d+")
ENGINES = ("local", "ray")
DEMO_OUT = "site"  # default folder of the demo
SUPPLEMENT = "supplement.zip"  # default file of a packed archive
REPORT = "report.html"  # default file of a site packed into one page
PRECISIONS = ("float32", "bfloat16")
LEVELS = ("off", "fast", "full")  # values of the option importance
UNITS = {"kb": 1e3, "mb": 1e6, "gb": 1e9}  # bytes of each unit of size
SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([kmg]b)", re.IGNORECASE)
OFFLOADS = ("off", "auto", "disk")
DTYPES = ("float32", "float64", "float16", "bfloat16")
LISTS = {"metrics", "facet", "control", "device"}  # options of several comma-separated values
COUNTS = {"sentence_pages"}  # options that accept a number or a word
MOST_SEED = 2**32 - 1  # largest seed that all random generators accept


def option(default: Any, text: str, *flags: str, place: bool = False) -> Any:
    """Declare an option: its default, its help and its short flags.

    Args:
        place: whether the option only decides where files lie, how the machine is used or what
            is printed, not what is computed; a study does not record such an option.
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
    limit: int | None = option(
        None, "Take the first sentences only, so many; what stands behind them is not read."
    )
    sample: int | None = option(
        None,
        "Take so many sentences only, those with the smallest hashes of their content: the same "
        "in any order of the input.",
    )
    text_column: str | None = option(
        None,
        "Column of the text in tables and datasets, where it is not 'text', or 'source' and "
        "'target'.",
    )
    subset: str | None = option(None, "Subset of a dataset of Hugging Face that has several.")
    split: str | None = option(
        None, "Split of a dataset of Hugging Face. Default: 'train', or the only one."
    )
    title: str | None = option(None, "Title of the site.")
    notes: Path | None = option(
        None, "Markdown file with your own text for the overview.", place=True
    )
    annotator: str = option(
        "embedded",
        "spaCy pipeline for words, parts of speech and dependencies: an installed name, a folder, "
        "'embedded' (English) or 'none' (words only). CoNLL-U input has its own.",
    )
    target_annotator: str = option(
        "none", "The same for the target side of source-target pairs; often another language."
    )
    language: str = option(
        "en",
        "Language of the texts, for word frequencies: a code that wordfreq has, such as "
        "'en'; any other code takes counts in the input itself; 'none' leaves rare words out.",
    )
    target_language: str = option("none", "The same for the target side of source-target pairs.")
    device: str = option(
        "auto",
        f"Where to run the model: {', '.join(DEVICES)}; of several, as in cuda:0,cuda:1, each gets "
        "a worker.",
    )
    dtype: str = option("float32", f"Number format of the weights: {', '.join(DTYPES)}.")
    offload: str = option(
        "off",
        f"Where weights go that the device does not hold: {', '.join(OFFLOADS)}. auto fills the "
        "device, then memory, then the disk; disk leaves all layers there until they run. Slow; "
        "needs accelerate.",
        place=True,
    )
    batch_tokens: int = option(2048, "Tokens, padding included, that a batch may hold.")
    max_length: int | None = option(
        None,
        "Longest sequence in tokens; longer ones are cut. Default: the limit of the model, "
        "at most 512.",
    )
    pack: int | None = option(
        None,
        "Join consecutive sentences of a document into passages of at most so many tokens, with "
        "the model's separator between them.",
    )
    exemplars: int = option(5, "Sentences with the largest weights that a head page shows.")
    sentence_pages: str = option(
        "50",
        "How many sentences get a page with the maps of all heads, or 'all': half of them the "
        "first ones, half those that most heads have among their exemplars. Other exemplars get a "
        "page with the maps of the heads that cite them.",
    )
    query_key_sentences: int = option(
        2,
        "Number of sentences with pages, from the first on, whose query and key vectors are kept, "
        "to show how each weight is computed; those over 16 MB per attention type are left out.",
    )
    vocabulary_sentences: int = option(
        100, "Sentences, chosen by a hash of their content, on which vocabulary ranks are averaged."
    )
    vocabulary_precision: str = option(
        "float32",
        f"Number format of the product of states and vocabulary: {', '.join(PRECISIONS)}. Faster "
        "on some devices; its effect on ranks is measured and printed. With --dtype float64 it "
        "stays float64.",
    )
    sample_sentences: int = option(
        200,
        "Sentences, chosen by a hash of their content, for measures that need several passes or "
        "all pairs of heads.",
    )
    importance: str = option(
        "fast",
        "Whether heads are taken away to see what the model needs them for: off; fast (estimates "
        "for all heads, exact numbers for the 20 with the largest ones and 20 others, at most 40 "
        "forward passes over a sample; and each layer, and the sink heads beside 20 random sets); "
        "or full (every head, groups beside 100 random sets, and pruning curves).",
    )
    importance_sentences: int = option(
        100, "Sentences, chosen by a hash of their content, on which heads are taken away."
    )
    margin: float | None = option(
        None,
        "Change from which on a sentence counts as changed without a head, in the target's unit: 1 "
        "minus a cosine, or nats per token. Default: 1 % of the mean distance between two "
        "sentences, 0.5 % of the whole model's loss. At least 10 times the change by rounding "
        "weights to bfloat16.",
    )
    metrics: str = option("all", "Metrics to compute, separated by commas; or 'all'.")
    facet: str = option(
        "auto",
        "Metadata columns whose values group sentences, separated by commas; 'auto': those of "
        f"{', '.join(FACETS)} that have 2 to 12 values; or 'none'.",
    )
    pair_member: str | None = option(
        None,
        "Metadata column that distinguishes the two sentences of a pair_id. Default: one whose two "
        "values do so in every pair, else their order.",
    )
    control: str = option(
        "none",
        f"Controls to run as well, separated by commas: {', '.join(Baseline)} (the same "
        "architecture with random weights; the same words in random order); or 'none'.",
    )
    control_seeds: int = option(3, "Models with random weights, 1 to 5; several give a band.")
    seed: int = option(0, "Seed of everything random.")
    out: Path | None = option(
        None,
        f"Folder to write; of pack the file, by default {SUPPLEMENT} or {REPORT}.",
        "-o",
        place=True,
    )
    keep_study: Path | None = option(
        None,
        "Folder to keep the study in as well, for the commands render, figures and pack.",
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
        "Memory that tables of all pairs of a text's tokens may take, such as '4GB'; texts for "
        "which it is too little have no pages, and take no part in measures of the sample. "
        "Default: an eighth of the machine's; texts of up to 512 tokens always have room.",
        place=True,
    )
    accept_failed_checks: bool = option(
        False,
        "End with exit code 0, not 3, though a self-check failed; the overview still names it.",
        place=True,
    )
    processes: int = option(
        0,
        "Processes that render pages, each with the study in memory; 0: one for every two cores, "
        "at most three, if there are many pages.",
        place=True,
    )
    workers: int = option(
        1, "Processes that run the model over the corpus, each with a copy of it.", place=True
    )
    engine: str = option(
        "local", "What runs workers: local, or ray for those of a Ray cluster.", place=True
    )
    address: str | None = option(
        None, "Address of a Ray cluster; without one this machine is the cluster.", place=True
    )
    restart: bool = option(
        False,
        "Begin anew, not where a run into the same folder was stopped.",
        place=True,
    )
    force: bool = option(
        False,
        "Replace an existing folder of Headbook's in which nothing else is.",
        "-f",
        place=True,
    )
    open: bool = option(False, "Open the site in the browser when it is done.", place=True)
    quiet: bool = option(False, "Print errors only.", "-q", place=True)
    verbose: bool = option(
        False, "Print messages of the libraries, and where a bug happened.", "-v", place=True
    )

    def __post_init__(self) -> None:
        """Convert the values to their types and check their ranges."""
        for each in dataclasses.fields(self):
            self._convert(each)
            self._check_letters(each.name)
        are_devices = all(DEVICE.fullmatch(each) for each in self.devices)
        self._check(
            are_devices, "device", f"one of {', '.join(DEVICES)}, cuda:0, or several with commas"
        )
        self._check(self.dtype in DTYPES, "dtype", f"one of {', '.join(DTYPES)}")
        self._check(self.offload in OFFLOADS, "offload", f"one of {', '.join(OFFLOADS)}")
        known_precision = self.vocabulary_precision in PRECISIONS
        self._check(known_precision, "vocabulary_precision", f"one of {', '.join(PRECISIONS)}")
        self._check(self.batch_tokens >= 1, "batch_tokens", "at least 1")
        self._check(self.max_length is None or self.max_length >= 1, "max_length", "at least 1")
        self._check(self.pack is None or self.pack >= 1, "pack", "at least 1")
        self._check_part()
        self._check(self.exemplars >= 1, "exemplars", "at least 1")
        self._check(self.query_key_sentences >= 0, "query_key_sentences", "at least 0")
        self._check(self.vocabulary_sentences >= 1, "vocabulary_sentences", "at least 1")
        self._check(1 <= self.sample_sentences <= 2000, "sample_sentences", "1 to 2000")
        self._check(self.importance in LEVELS, "importance", f"one of {', '.join(LEVELS)}")
        in_range = 2 <= self.importance_sentences <= 2000
        self._check(in_range, "importance_sentences", "2 to 2000")
        sized = self.margin is None or 0 < self.margin < float("inf")
        self._check(sized, "margin", "a number above 0")
        for name in ("language", "target_language"):
            well_formed = getattr(self, name).replace("-", "")
            self._check(well_formed.isalnum(), name, "a language code such as 'en', or 'none'")
        asked = set(self.control.split(","))
        known = {"none"} if "none" in asked else {*Baseline}
        self._check(asked <= known, "control", f"'none' or some of {', '.join(Baseline)}")
        whole = self.offload == "off" or str(Baseline.UNTRAINED) not in asked
        self._check(whole, "offload", "off beside --control untrained, whose weights are in memory")
        self._check(1 <= self.control_seeds <= 5, "control_seeds", "1 to 5")
        self._check(self.processes >= 0, "processes", "at least 0")
        self._check(self.workers >= 1, "workers", "at least 1")
        self._check(self.engine in ENGINES, "engine", f"one of {', '.join(ENGINES)}")
        self._check(self.address is None or self.engine == "ray", "address", "also --engine ray")
        sized = self.memory is None or SIZE.fullmatch(self.memory) is not None
        self._check(sized, "memory", "a size such as '50MB', '800kB' or '1.5GB'")
        web = urlsplit(self.base_url or "https://localhost/")
        well_formed = (
            web.scheme in {"http", "https"} and web.netloc and not (web.query or web.fragment)
        )
        self._check(
            bool(well_formed), "base_url", "an address such as 'https://somebody.github.io/heads/'"
        )
        self._check(self.seed >= 0, "seed", f"0 to {MOST_SEED}")
        pages = self.sentence_pages
        self._check(pages == "all" or pages.isdecimal(), "sentence_pages", "a number or 'all'")

    def _convert(self, each: "dataclasses.Field[Any]") -> None:
        """Convert the value of one option to the option's type."""
        value = getattr(self, each.name)
        try:
            fitting = _fitting(each, value)
        except ValueError as error:
            raise ConfigError(f"{flag(each.name)}: got {value!r:.100}, expected {error}") from error
        object.__setattr__(self, each.name, fitting)

    def _check_part(self) -> None:
        """Refuse amounts below 1, and ``--sample`` together with ``--limit`` or ``--pack``."""
        for name in ("limit", "sample"):
            amount = getattr(self, name)
            self._check(amount is None or amount >= 1, name, "at least 1")
        for other in ("limit", "pack"):
            if self.sample is not None and getattr(self, other) is not None:
                raise ConfigError(
                    f"--sample: got {self.sample} with {flag(other)}, expected one of the two"
                )

    def _check_letters(self, name: str) -> None:
        """Refuse text that UTF-8 cannot encode, and blank text except as the title."""
        value = getattr(self, name)
        if not isinstance(value, str | Path):
            return
        text = str(value)
        sound = "\0" not in text and text == text.encode(errors="replace").decode()
        if not sound:
            raise ConfigError(f"{flag(name)}: got {text!a}, expected text in UTF-8")
        self._check(bool(text.strip()) or name == "title", name, "something that is not blank")

    def _check(self, fits: bool, name: str, expected: str) -> None:
        if not fits:
            raise ConfigError(f"{flag(name)}: got {getattr(self, name)!r}, expected {expected}")

    @property
    def n_sentence_pages(self) -> float:
        """Number of sentences that get a page; infinite for 'all'."""
        return float("inf") if self.sentence_pages == "all" else int(self.sentence_pages)

    @property
    def memory_bytes(self) -> float | None:
        """Bytes that the tables of one text may take; None without ``--memory``."""
        match = SIZE.fullmatch(self.memory or "")
        return float(match[1]) * UNITS[match[2].lower()] if match else None

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

    def recorded(self) -> dict[str, Any]:
        """Return the options that decide the numbers and the pages, for the manifest."""
        values = dataclasses.asdict(self)
        return {f.name: values[f.name] for f in dataclasses.fields(self) if not f.metadata["place"]}

    @classmethod
    def of(cls, file: Path | None = None, **given: Any) -> Self:
        """Combine a configuration file and given options; given options win.

        Args:
            file: a TOML file whose keys are option names, with ``-`` or ``_``; or None.
            given: options by name; None means "not given".

        Raises:
            ConfigError: the file cannot be read, or it or ``given`` holds an unknown name or a
                value that does not fit.
        """
        values = {} if file is None else read_toml(file)
        for name in given:
            _check_known(name, "")
        return cls(**(values | {k: v for k, v in given.items() if v is not None}))


def flag(name: str) -> str:
    """Return the spelling of an option on the command line, such as ``--out``."""
    return "--" + name.replace("_", "-")


def read_toml(file: Path) -> dict[str, Any]:
    """Read options from a TOML file.

    Raises:
        ConfigError: the file cannot be read or holds an unknown or unsuitable option; the message
            gives the file and, if known, the line or the key.
    """
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{file.name}: {_why(error)}; expected a TOML file of options") from error
    return dict(_entry(file, key, value) for key, value in table.items())


def read_notes(file: Path | None) -> str:
    """Return the text of the file given with ``--notes``; empty without a file.

    Raises:
        ConfigError: the file cannot be read.
    """
    try:
        return "" if file is None else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"--notes: {file}: {_why(error)}; expected a Markdown file in UTF-8"
        ) from error


def _why(error: Exception) -> str:
    """Return why a file cannot be read, without its name and without the words of Python."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return str(getattr(error, "strerror", None) or error)


def _entry(file: Path, key: str, value: object) -> tuple[str, object]:
    fields = {f.name: f for f in dataclasses.fields(Config)}
    name = key.replace("-", "_")
    _check_known(name, f"{file.name}: ", key)
    try:
        value = _fitting(fields[name], value)
    except ValueError as error:
        raise ConfigError(f"{file.name}: {key}: got {value!r:.100}, expected {error}") from error
    if isinstance(value, Path):
        value = file.parent / value  # paths are relative to the file that names them
    return name, value


def _check_known(name: str, place: str, written: str | None = None) -> None:
    """Raise an error if no option has this name.

    Args:
        place: source of the name, such as the file, which begins the message.
        written: spelling of the name in that source.
    """
    names = [f.name for f in dataclasses.fields(Config)]
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"; did you mean '{near[0]}'?" if near else f"; options are {', '.join(names)}"
        raise ConfigError(f"{place}unknown option '{written or name}'{hint}")


def _fitting(each: "dataclasses.Field[Any]", value: Any) -> Any:
    """Return a value converted to the type of its option.

    Raises:
        ValueError: the value does not fit; the message says what is expected.
    """
    return option_value(
        each.type,
        value,
        listed=each.name in LISTS,
        counted=each.name in COUNTS,
        most=MOST_SEED if each.name == "seed" else MOST,
    )


def creation_date() -> str:
    """Return the date that a study records: ``SOURCE_DATE_EPOCH`` if set, else today, in UTC.

    Raises:
        ConfigError: ``SOURCE_DATE_EPOCH`` holds no date.
    """
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    if not epoch:
        return dt.datetime.now(dt.UTC).date().isoformat()
    try:
        return dt.datetime.fromtimestamp(int(epoch), dt.UTC).date().isoformat()
    except (ValueError, OverflowError, OSError):
        raise ConfigError(
            f"SOURCE_DATE_EPOCH: got {epoch!a}, expected whole seconds since 1970, up to the "
            "year 9999, or no such variable"
        ) from None
