"""`headbook.build` and `headbook.compare`: sites from inputs and models in one call."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from headbook.comparison.comparison import compare as compare_studies
from headbook.config import Config
from headbook.errors import ConfigError
from headbook.inputs import InputLayout, input_sources
from headbook.option_values import DTYPES, correspondence_of
from headbook.output_folder import OutputKind, check_output_folder
from headbook.progress import Progress
from headbook.run.collect import collect
from headbook.run.models import UNTRAINED, CollectedPair, collect_pair
from headbook.run.objects import ModelObject
from headbook.site.sites import render, render_comparison
from headbook.site.writer import Site
from headbook.study.study import Study

PAIR_OPTIONS = ("dtypes", "trained_from", "rounding_floor")  # options of a comparison alone


def build(
    inputs: Any,
    out: str | Path,
    *,
    model: Any = None,
    tokenizer: Any = None,
    progress: Progress | None = None,
    **options: Any,
) -> Site:
    """Collect a study and write its site.

    ```python
    site = headbook.build(["The cat sees a dog."], "site", model=model, tokenizer=tokenizer)
    site.show()
    ```

    Args:
        inputs: texts, pairs, tables, datasets or files, as for `headbook.collect`.
        out: folder to write; it appears when it is complete.
        model: a model object, or a name.
        tokenizer: the tokenizer of a model object, or the name of another one.
        progress: reporter of progress.
        options: options of `headbook.collect`, and ``base_url``, ``force``, ``processes`` (1 by
            default) and ``keep_study`` as on the command line.

    Raises:
        HeadbookError: options, input, model or folder do not fit; in one line.
    """
    config, folder = _site_options(out, options)
    if config.keep_study is not None:
        check_output_folder(config.keep_study, OutputKind.STUDY, force=config.force)
    study = collect(inputs, model=model, tokenizer=tokenizer, progress=progress, **options)
    if config.keep_study is not None:
        study.save(config.keep_study, force=config.force)
    return render(
        study, folder, base_url=config.base_url, force=config.force,
        processes=options.get("processes", 1), progress=progress,
    )  # fmt: skip


def compare(
    inputs: Any,
    *,
    out: str | Path,
    models: tuple[Any, Any] | None = None,
    tokenizers: tuple[Any, Any] | None = None,
    heads: str = "auto",
    progress: Progress | None = None,
    **options: Any,
) -> Site:
    """Write the site of two models on the same sentences.

    ```python
    headbook.compare(texts, models=(a, b), tokenizers=(tokenizer, tokenizer), out="site")
    headbook.compare((study_a, study_b), out="site")
    ```

    Args:
        inputs: as for `headbook.collect`; without ``models`` two studies or their folders.
        out: folder to write; it appears when it is complete.
        models: two model objects or names; ``"untrained"``: the first one with random weights.
        tokenizers: tokenizers of model objects; None for names.
        heads: heads to compare, a value of `headbook.schema.HeadCorrespondence`.
        progress: reporter of progress.
        options: of `headbook.collect`, and as on the command line ``base_url``, ``force``,
            ``dtypes``, ``trained_from`` and ``rounding_floor``.

    Raises:
        HeadbookError: options, inputs, models or folder do not fit; in one line.
    """
    of_pair = {name: options.pop(name) for name in PAIR_OPTIONS if name in options}
    config, folder = _site_options(out, options)
    alike = correspondence_of(heads)
    if models is None:
        comparison = compare_studies(*_two_studies(inputs), alike)
    else:
        sources = _two_models(models, tokenizers)
        pair = _collect_two(inputs, config, sources, progress=progress, **of_pair)
        comparison = compare_studies(
            pair.a, pair.b, alike, rounded=pair.rounded, null=pair.null, drift=pair.drift,
            twice=pair.twice,
        )  # fmt: skip
    return render_comparison(
        comparison, folder, base_url=config.base_url, force=config.force, progress=progress
    )


def _collect_two(
    inputs: Any,
    config: Config,
    sources: tuple[str | ModelObject, str | ModelObject],
    *,
    dtypes: tuple[str, str] | None = None,
    trained_from: bool = False,
    rounding_floor: bool = True,
    progress: Progress | None,
) -> CollectedPair:
    """Return the studies of two models, and what a difference is measured against.

    Args:
        dtypes: number formats of the weights; by default an object's own, or float32.
        trained_from: compare head outputs, too: the second model was trained from the first.
        rounding_floor: run the first model twice more, for the effect of rounding alone.
    """
    with TemporaryDirectory(prefix="headbook-untrained-") as folder:
        return collect_pair(
            input_sources(inputs, InputLayout.of(config)),
            config,
            models=sources,
            dtypes=dtypes or _own_dtypes(sources),
            folder=Path(folder),
            trained=trained_from,
            floor=rounding_floor,
            progress=progress,
        )


def _site_options(out: str | Path, options: dict[str, Any]) -> tuple[Config, Path]:
    """Return the options of a site, after a check of its folder and before anything slow begins."""
    config = Config.of(**options)
    check_output_folder(Path(out), OutputKind.SITE, force=config.force)
    return config, Path(out)


def _two_studies(inputs: Any) -> tuple[Study, Study]:
    """Return two studies, given as such or by their folders.

    Raises:
        ConfigError: the inputs are not two studies.
        StudyError: a folder has no study that can be read.
    """
    is_two = isinstance(inputs, tuple | list) and len(inputs) == 2
    if not is_two or not all(isinstance(each, Study | str | Path) for each in inputs):
        raise ConfigError(
            "compare: got no models and inputs that are not two studies; expected two studies or "
            "their folders, or models=(a, b) and the sentences that both read"
        )
    a, b = (each if isinstance(each, Study) else Study.load(Path(each)) for each in inputs)
    return a, b


def _two_models(models: Any, tokenizers: Any) -> tuple[str | ModelObject, str | ModelObject]:
    """Return two models as names or as objects with their tokenizers.

    Raises:
        ConfigError: there are not two models, or not two tokenizers, or a name has a tokenizer.
        ModelError: an object is of another class, or has no tokenizer.
    """
    for name, values in (("models", models), ("tokenizers", tokenizers or (None, None))):
        if not isinstance(values, tuple | list) or len(values) != 2:
            kind = type(values).__name__
            found = f"{len(values)} in a {kind}" if isinstance(values, tuple | list) else kind
            raise ConfigError(f"{name}: got {found}, expected a tuple of two")
    sources: list[str | ModelObject] = []
    for model, tokenizer in zip(models, tokenizers or (None, None), strict=True):
        if not isinstance(model, str | Path):
            sources.append(ModelObject.of(model, tokenizer))
        elif tokenizer is None:
            sources.append(str(model))
        else:
            raise ConfigError(
                f"tokenizers: got one with the model's name '{model}'; expected None for a name, "
                "or the model's object"
            )
    return sources[0], sources[1]


def _own_dtypes(models: tuple[str | ModelObject, str | ModelObject]) -> tuple[str, str]:
    """Return the number formats of objects' weights, and float32 for names."""
    first, second = (
        model.dtype if isinstance(model, ModelObject) else DTYPES[0] for model in models
    )
    return first, first if models[1] == UNTRAINED else second
