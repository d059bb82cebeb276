"""From input files and a model to a study."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from headbook.config import Config
from headbook.dates import today
from headbook.errors import ConfigError
from headbook.inputs import Corpus, open_corpus
from headbook.measures.threads import own_threads
from headbook.metrics import chosen_metrics
from headbook.network.anatomy import examine
from headbook.network.model import Model, load_model
from headbook.network.ownattention import settle
from headbook.network.randomness import own_randomness
from headbook.passes.run import Run
from headbook.progress import Progress, Silent
from headbook.stored.study import Study
from headbook.terms import Side
from headbook.text.annotate import Annotator
from headbook.text.encode import Encoder
from headbook.text.facets import facets
from headbook.text.passages import Passages, packed
from headbook.text.rarity import Rarity
from headbook.text.sequences import probes
from headbook.writing.size import Expected, check_limit, expected


def collect(
    inputs: Sequence[str | Path] | str | Path,
    config: Config | None = None,
    *,
    progress: Progress | None = None,
    **options: Any,
) -> Study:
    """Run a model over sentences and keep what pages and tables need.

    The process is left as it was, but for a name that transformers then knows our attention by.

    Args:
        inputs: input files; ``-`` is standard input.
        config: options as one value; or give them by name.
        progress: told how far the run has come.

    Raises:
        HeadbookError: in one line, what does not fit in options, input or model.
    """
    config = config or Config.of(**options)
    files = [inputs] if isinstance(inputs, str | Path) else list(inputs)
    metrics = chosen_metrics(config.metrics)  # wrong names are told before anything slow begins
    notes = _read_notes(config.notes)
    today()  # a wrong date, too
    randomness = own_randomness(config.seed, _graphics(config.device))
    with randomness, own_threads(), open_corpus(files) as corpus:
        columns = facets(corpus, config.facet, config.pair_member)
        model = load_model(
            config.model,
            revision=config.revision,
            device=config.device,
            dtype=config.dtype,
            verbose=config.verbose,
        )
        limit = config.max_length or model.limit
        texts: Corpus | Passages = corpus
        if config.pack is not None:
            texts = packed(corpus, model, config.pack, limit)
            columns = facets(texts, config.facet, config.pair_member)
        encoder = Encoder(
            model,
            limit=limit,
            targets=Annotator.load(config.target_annotator),
            rarities=_rarities(config, corpus, model),
        )
        run = Run(
            texts,
            config,
            progress or Silent(),
            model,
            settle(model, examine(model), probes(encoder)),
            tuple(metrics.values()),
            Annotator.load(config.annotator),
            encoder,
            facets=columns,
        )
        whole, least = _expected(run)
        run.progress.say(whole.said())
        check_limit(least, config.max_bytes)
        return run.study(notes)


def _graphics(device: str) -> list[int]:
    """The GPU that will be used, if any."""
    asked = device in {"auto", "cuda"} and torch.cuda.is_available()
    return [torch.cuda.current_device()] if asked else []


def _expected(run: Run) -> tuple[Expected, Expected]:
    """How large the site will be, and how large with the least detail."""
    pages = run.config.n_sentence_pages
    listed = (sentence for sentence in run.corpus if sentence.index < pages)
    lengths = [*run.encoder.lengths(listed)]
    given = [*run.anatomy.stacks.values()], run.metrics, run.config, lengths
    sentences = len(run.corpus)
    return (
        expected(*given, sentences=sentences),
        expected(*given, sentences=sentences, least=True),
    )


def _rarities(config: Config, corpus: Corpus, model: Model) -> dict[Side, Rarity]:
    """What is known of the frequencies of words on each side that the model takes."""
    found = {Side.SOURCE: Rarity.load(config.language, (s.text for s in corpus))}
    if model.config.is_encoder_decoder:
        targets = (s.target for s in corpus if s.target is not None)
        found[Side.TARGET] = Rarity.load(config.target_language, targets)
    return found


def _read_notes(file: Path | None) -> str:
    """The author's own words.

    Raises:
        ConfigError: the file cannot be read.
    """
    try:
        return "" if file is None else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--notes: {error}; expected a Markdown file in UTF-8") from error
