"""Sites from inputs and models in one call: `headbook.build`, `compare` and `checkpoints`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Unpack

from headbook.comparison.checkpoints import Checkpoints, NamedStudy, checkpoints_of
from headbook.comparison.comparison import Comparison
from headbook.comparison.comparison import compare as compare_studies
from headbook.config import Config, lists_options
from headbook.config_checks import check_option_names
from headbook.errors import ConfigError
from headbook.inputs import InputLayout, input_sources
from headbook.option_values import DTYPES, correspondence_of
from headbook.options import Options
from headbook.output_folder import MANIFEST, OutputKind, check_output_folder
from headbook.progress import Progress, reporter
from headbook.python_options import names_arguments
from headbook.run.arguments import list_checkpoints
from headbook.run.collect import collect_study
from headbook.run.models import UNTRAINED, CollectedPair, checkpoint_studies, collect_pair
from headbook.run.objects import ModelObject, model_and_options
from headbook.site.sites import render, render_checkpoints, render_comparison
from headbook.study.study import Study
from headbook.written_site import Site


@lists_options
@names_arguments
def build(
    inputs: Any,
    model: Any = None,
    tokenizer: Any = None,
    *,
    out: str | Path,
    name: str | None = None,
    work: str | Path | None = None,
    keep_study: str | Path | None = None,
    base_url: str | None = None,
    force: bool = False,
    processes: int = 1,
    progress: Progress | bool = True,
    **options: Unpack[Options],
) -> Site:
    """Collect a study and write its site.

    ```python
    site = headbook.build(["The cat sees a dog."], model, tokenizer, out="site")
    site.show()
    ```

    Args:
        inputs: texts, pairs, tables, datasets or files, as for `headbook.collect`.
        model: a model object, or a name.
        tokenizer: the tokenizer of a model object, or the name of another one.
        out: folder to write; it appears when it is complete.
        name: name of a model object on pages; by default its checkpoint, or its class and size.
        work: folder for finished parts, from which the same call continues after it was stopped.
        keep_study: folder in which to keep the study.
        base_url: address where the folder will be published, if that is known.
        force: replace a site of Headbook that is there; one with foreign files is refused.
        processes: number of processes that draw pages, as for `headbook.render`.
        progress: whether to show a bar in terminals and notebooks; or a `headbook.Progress`.
        options: options of `headbook.collect`.

    Raises:
        HeadbookError: options, input, model or folder do not fit; in one line.
    """
    source, config = model_and_options(model, tokenizer, options, name=name)
    config = replace(config, base_url=base_url)
    check_output_folder(Path(out), OutputKind.SITE, force=force)
    if keep_study is not None:
        check_output_folder(Path(keep_study), OutputKind.STUDY, force=force)
    sources = input_sources(inputs, InputLayout.of(config))
    with reporter(progress) as bar:
        folder = None if work is None else Path(work)
        study = collect_study(sources, config, source=source, progress=bar, work=folder)
        if keep_study is not None:
            study.save(keep_study, force=force)
        return render(study, out, base_url=base_url, force=force, processes=processes, progress=bar)


@lists_options
@names_arguments
def compare(
    inputs: Any,
    models: tuple[Any, Any] | None = None,
    tokenizer: Any = None,
    *,
    out: str | Path | None = None,
    heads: str = "auto",
    dtypes: tuple[str, str] | None = None,
    trained_from: bool = False,
    rounding_floor: bool = True,
    base_url: str | None = None,
    force: bool = False,
    progress: Progress | bool = True,
    **options: Unpack[Options],
) -> Comparison:
    """Compare two models on the same sentences, and write the site of the comparison.

    ```python
    comparison = headbook.compare(texts, (before, after), tokenizer, out="site")
    comparison.differences              # a row for each number of each head
    headbook.compare((study_a, study_b), out="site")
    ```

    Args:
        inputs: as for `headbook.collect`; without ``models`` two studies or their folders.
        models: two model objects or names; ``"untrained"``: the first one with random weights.
        tokenizer: the tokenizer of both model objects, or a pair; None for names.
        out: folder of the site; it appears when it is complete. Without one, none is written.
        heads: heads to compare, a value of `headbook.schema.HeadCorrespondence`.
        dtypes: number formats of the weights; by default an object's own, or float32.
        trained_from: compare head outputs, too: the second model was trained from the first.
        rounding_floor: run the first model twice more, for the effect of rounding alone.
        base_url: address where the folder will be published, if that is known.
        force: replace a site of Headbook that is there; one with foreign files is refused.
        progress: whether to show a bar in terminals and notebooks; or a `headbook.Progress`.
        options: options of `headbook.collect`.

    Raises:
        HeadbookError: options, inputs, models or folder do not fit; in one line.
    """
    config = _site_config(options, out, base_url=base_url, force=force)
    alike = correspondence_of(heads)
    with reporter(progress) as bar:
        if models is None:
            comparison = compare_studies(*_two_studies(inputs), alike)
        else:
            pair = _collect_two(
                inputs, config, _two_models(models, tokenizer), bar, dtypes=dtypes,
                trained_from=trained_from, rounding_floor=rounding_floor,
            )  # fmt: skip
            comparison = compare_studies(
                pair.a, pair.b, alike, rounded=pair.rounded, null=pair.null, drift=pair.drift,
                twice=pair.twice,
            )  # fmt: skip
        if out is None:
            return comparison
        site = render_comparison(comparison, out, base_url=base_url, force=force, progress=bar)
    return replace(comparison, site=site)


@lists_options
@names_arguments
def checkpoints(
    inputs: Any,
    models: Any = None,
    tokenizer: Any = None,
    *,
    out: str | Path | None = None,
    revisions: Sequence[str] = (),
    keep_studies: str | Path | None = None,
    base_url: str | None = None,
    force: bool = False,
    progress: Progress | bool = True,
    **options: Unpack[Options],
) -> Checkpoints:
    """Follow every head over the checkpoints of a training, and write the site of it.

    ```python
    training = headbook.checkpoints(texts, "run", out="site")       # run/step-0, run/step-64, …
    training = headbook.checkpoints(texts, {0: before, 640: after}, tokenizer)
    training.curves                     # a row for each number, head and step
    ```

    One study is in memory at a time.

    Args:
        inputs: as for `headbook.collect`; without ``models`` studies or their folders by step.
        models: a folder that holds checkpoints, or a hub id with ``revisions``; a list of names; or
            a mapping from a step to a model object, a name, a study or the folder of one.
        tokenizer: the tokenizer of model objects, or the name of another one.
        out: folder of the site; it appears when it is complete. Without one, none is written.
        revisions: checkpoints of one model in order: revisions on the hub, or folders inside one.
        keep_studies: folder that keeps the study of each checkpoint of one model; a study that is
            there is not collected again.
        base_url: address where the folder will be published, if that is known.
        force: replace a site of Headbook that is there; one with foreign files is refused.
        progress: whether to show a bar in terminals and notebooks; or a `headbook.Progress`.
        options: options of `headbook.collect`.

    Raises:
        HeadbookError: options, inputs, models or folder do not fit; in one line.
    """
    config = _site_config(options, out, base_url=base_url, force=force)
    with reporter(progress) as bar:
        title = config.title or ""
        if isinstance(models, str | Path):
            _, config = model_and_options(models, tokenizer, options)
            sources = list_checkpoints(str(models), [*revisions])
            title = title or f"Training of {Path(models).name}"
            kept = None if keep_studies is None else Path(keep_studies)
            texts = input_sources(inputs, InputLayout.of(config))
            named = checkpoint_studies(sources, texts, config, studies=kept, progress=bar)
        else:
            if revisions or keep_studies is not None:
                raise ConfigError(
                    "revisions, keep_studies: expected with one folder or hub id as models alone"
                )
            given = inputs if models is None else models
            named = [*_named_studies(given, inputs, tokenizer, options, bar)]
        training = checkpoints_of(named)
        if out is None:
            return training
        site = render_checkpoints(
            training, out, title=title, base_url=base_url, force=force, progress=bar
        )
    return replace(training, site=site)


def _site_config(
    options: Mapping[str, Any], out: str | Path | None, *, base_url: str | None, force: bool
) -> Config:
    """Return the options of a site of several models, after a check of its folder.

    Raises:
        ConfigError: an option is unknown or has a wrong value.
        OutputError: the folder may not be replaced.
    """
    check_option_names(options)
    config = Config.of(base_url=base_url, **options)
    if out is not None:
        check_output_folder(Path(out), OutputKind.SITE, force=force)
    return config


def _named_studies(
    models: Any, inputs: Any, tokenizer: Any, options: Mapping[str, Any], progress: Progress
) -> Iterator[NamedStudy]:
    """Yield the studies of a mapping from steps, or of a list of names, yet to be collected.

    Raises:
        ConfigError: the models are no mapping and no list.
    """
    if isinstance(models, Mapping):
        named = {str(step): model for step, model in models.items()}
    elif isinstance(models, list | tuple):
        named = {str(model): model for model in models}
    else:
        raise ConfigError(
            f"models: got {type(models).__name__}, expected a folder of checkpoints, a list of "
            "names, or a mapping from a step to a model or study"
        )
    for name, model in named.items():
        if isinstance(model, Study):
            yield NamedStudy(name, partial(_same, model))
        elif isinstance(model, str | Path) and (Path(model) / MANIFEST).is_file():
            yield NamedStudy(name, partial(Study.load, model))
        else:
            source, config = model_and_options(model, tokenizer, options)
            texts = input_sources(inputs, InputLayout.of(config))
            study = partial(collect_study, texts, config, source=source, progress=progress)
            yield NamedStudy(name, study)


def _same(study: Study) -> Study:
    return study


def _collect_two(
    inputs: Any,
    config: Config,
    sources: tuple[str | ModelObject, str | ModelObject],
    progress: Progress,
    *,
    dtypes: tuple[str, str] | None,
    trained_from: bool,
    rounding_floor: bool,
) -> CollectedPair:
    """Return the studies of two models, and what a difference is measured against."""
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
            "their folders, or the sentences and models=(a, b) that both read"
        )
    a, b = (each if isinstance(each, Study) else Study.load(Path(each)) for each in inputs)
    return a, b


def _two_models(models: Any, tokenizer: Any) -> tuple[str | ModelObject, str | ModelObject]:
    """Return two models as names or as objects with their tokenizers.

    Raises:
        ConfigError: there are not two models, or a pair that is none of tokenizers, or a name has a
            tokenizer.
        ModelError: an object is of another class, or has no tokenizer.
    """
    tokenizers = tokenizer if isinstance(tokenizer, tuple | list) else (tokenizer, tokenizer)
    for name, values in (("models", models), ("tokenizer", tokenizers)):
        if not isinstance(values, tuple | list) or len(values) != 2:
            kind = type(values).__name__
            number = f"{len(values)} in a {kind}" if isinstance(values, tuple | list) else kind
            raise ConfigError(f"{name}: got {number}, expected a tuple of two")
    lone = tokenizer is not None and not isinstance(tokenizer, tuple | list)
    if lone and all(isinstance(model, str | Path) for model in models):
        raise ConfigError(
            "tokenizer: got one with the names of two models; expected None, as each has its own"
        )
    if _share_layers(*models):
        raise ConfigError(
            "models: got two objects with the same layers, as after peft has added an adapter to "
            "its base in place; expected a base that was loaded a second time, or a copy"
        )
    sources: list[str | ModelObject] = []
    for model, own_tokenizer in zip(models, tokenizers, strict=True):
        if not isinstance(model, str | Path):
            sources.append(ModelObject.of(model, own_tokenizer))
        elif own_tokenizer is None or not isinstance(tokenizer, tuple | list):
            sources.append(str(model))
        else:
            raise ConfigError(
                f"tokenizer: got one with the model's name '{model}'; expected None for a name, "
                "or the model's object"
            )
    return sources[0], sources[1]


def _share_layers(first: Any, second: Any) -> bool:
    """Return whether two different model objects have layers in common."""
    if first is second or not (hasattr(first, "modules") and hasattr(second, "modules")):
        return False
    return not {*first.modules()}.isdisjoint(second.modules())


def _own_dtypes(models: tuple[str | ModelObject, str | ModelObject]) -> tuple[str, str]:
    """Return the number formats of objects' weights, and float32 for names."""
    first, second = (
        model.dtype if isinstance(model, ModelObject) else DTYPES[0] for model in models
    )
    return first, first if models[1] == UNTRAINED else second
