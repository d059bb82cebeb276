"""Options come from a file and from the caller, who wins; what does not fit is told in one line."""

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headbook
from headbook.author import read_notes
from headbook.config import Config
from headbook.errors import ConfigError, HeadbookError


def written(folder: Path, text: str) -> Path:
    file = folder / "headbook.toml"
    file.write_text(text, encoding="utf-8")
    return file


def fault(*arguments: Path, **given: Any) -> str:
    with pytest.raises(ConfigError) as error:
        Config.of(*arguments, **given)
    message = str(error.value)
    assert "\n" not in message
    return message


def test_keys_of_a_file_are_option_names_with_either_dash(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        'model = "gpt2"\nbatch-tokens = 64\nmax_length = 9\nsentence-pages = 7\nforce = true\n',
    )
    config = Config.of(file)
    assert (config.model, config.batch_tokens, config.max_length) == ("gpt2", 64, 9)
    assert (config.sentence_pages, config.n_sentence_pages) == ("7", 7)
    assert config.force
    assert config.device == Config().device


def test_given_options_win_over_the_file_and_none_means_not_given(tmp_path: Path) -> None:
    file = written(tmp_path, 'title = "A"\nexemplars = 3\n')
    config = Config.of(file, title="B", exemplars=None, quiet=False)
    assert (config.title, config.exemplars) == ("B", 3)


def test_paths_are_relative_to_the_file_that_names_them(tmp_path: Path) -> None:
    config = Config.of(written(tmp_path, 'notes = "notes.md"\nout = "site"\n'))
    assert config.notes == tmp_path / "notes.md"
    assert config.out == tmp_path / "site"


def test_an_unknown_key_comes_with_a_suggestion(tmp_path: Path) -> None:
    assert fault(written(tmp_path, "exemplar = 3\n")) == (
        "headbook.toml: unknown option 'exemplar'; did you mean 'exemplars'?"
    )
    message = fault(written(tmp_path, "zzz = 3\n"))
    assert message.startswith("headbook.toml: unknown option 'zzz'; options are model, revision, ")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('exemplars = "three"', "headbook.toml: exemplars: got 'three', expected a whole number"),
        ("exemplars = 3.5", "headbook.toml: exemplars: got 3.5, expected a whole number"),
        ("exemplars = true", "headbook.toml: exemplars: got True, expected a whole number"),
        ("model = 1", "headbook.toml: model: got 1, expected text"),
        ("quiet = 1", "headbook.toml: quiet: got 1, expected true or false"),
        ("notes = 1", "headbook.toml: notes: got 1, expected a path"),
        ("max-length = [1]", "headbook.toml: max-length: got [1], expected a whole number"),
        ("exemplars = 0", "exemplars: got 0, expected at least 1"),
        (
            'device = "tpu"',
            "device: got 'tpu', expected one of auto, cpu, cuda, mps, cuda:0, or several with "
            "commas",
        ),
    ],
)
def test_a_wrong_value_in_a_file_is_one_line(tmp_path: Path, line: str, message: str) -> None:
    assert fault(written(tmp_path, line + "\n")) == message


@pytest.mark.parametrize("text", ["model = ", "= 1", 'model = "a"\nmodel = "b"'])
def test_a_file_that_is_not_toml_is_one_line(tmp_path: Path, text: str) -> None:
    message = fault(written(tmp_path, text))
    assert message.startswith("headbook.toml: ")
    assert message.endswith("; expected a TOML file of options")


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    assert fault(tmp_path / "no.toml").endswith("; expected a TOML file of options")
    (tmp_path / "latin.toml").write_bytes(b'title = "na\xefve"\n')
    assert fault(tmp_path / "latin.toml").endswith("; expected a TOML file of options")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("dtype", "int8"),
        ("batch_tokens", 0),
        ("max_length", 0),
        ("exemplars", -1),
        ("vocabulary_sentences", 0),
        ("sentence_pages", "some"),
        ("sentence_pages", "-1"),
        ("language", ""),
        ("target_language", "not one"),
        ("language", "german"),
        ("language", "xx"),
    ],
)
def test_a_value_out_of_range_names_its_option(name: str, value: object) -> None:
    assert fault(**{name: value}).startswith(f"{name}: got {value!r}, expected ")


@pytest.mark.parametrize(
    ("name", "code"), [("german", "de"), ("Thai", "th"), ("englisch", "en"), ("français", "fr")]
)
def test_the_name_of_a_language_leads_to_its_code(name: str, code: str) -> None:
    assert fault(language=name).endswith(f"did you mean '{code}'?")
    assert Config(language=code, target_language="zh_Hans").language == code


def test_all_sentences_may_get_a_page_or_none() -> None:
    assert Config(sentence_pages="all").n_sentence_pages == float("inf")
    assert Config(sentence_pages="0").n_sentence_pages == 0


def test_every_option_says_what_it_is_for() -> None:
    for field in dataclasses.fields(Config):
        text = field.metadata["help"]
        assert len(text.split()) > 2, field.name
        assert text.endswith("."), field.name


def test_no_two_options_share_a_short_flag() -> None:
    flags = [short for field in dataclasses.fields(Config) for short in field.metadata["flags"]]
    assert len(flags) == len(set(flags))


def test_what_is_recorded_holds_no_place_of_this_machine(tmp_path: Path) -> None:
    recorded = Config(out=tmp_path, notes=tmp_path / "n.md", verbose=True).recorded()
    assert not {"out", "notes", "force", "open", "quiet", "verbose"} & set(recorded)
    assert str(tmp_path) not in repr(recorded)
    assert recorded["seed"] == 0


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().seed = 1  # type: ignore[misc]


@pytest.mark.parametrize("url", ["heads", "ftp://a.example/", "javascript:alert(1)", "https:///x",
                                 "https://a.example/?q", "https://a.example/#top", "a.example",
                                 "http://[::1", "http://a.example:x/", "https://a.example/a b/",
                                 "https://a.example/\"x", "https://a.example/ä"])  # fmt: skip
def test_a_base_address_is_one_of_a_folder_on_the_web(url: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="base_url"):
        Config(base_url=url)
    with pytest.raises(ConfigError, match="base_url"):
        headbook.render(tmp_path / "study", tmp_path / "site", base_url=url)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("sentence_pages", "٣"), ("sentence_pages", "²"), ("sentence_pages", "1" + 9 * "0" + "0"),
        ("sentence_pages", "9" * 5000), ("memory", "999kB"), ("memory", "0.0001MB"),
        ("workers", 4 * (os.cpu_count() or 1) + 1),
    ],
)  # fmt: skip
def test_numbers_beyond_what_a_machine_has_are_refused(option: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"^{option}: got"):
        Config(**{option: value})


def test_the_largest_numbers_are_accepted() -> None:
    cores = os.cpu_count() or 1
    config = Config(sentence_pages="1000000000", memory="1MB", workers=4 * cores)
    assert (config.n_sentence_pages, config.memory_bytes) == (10**9, 1e6)
    assert Config(workers=4 * cores + 1, engine="ray").n_workers == 4 * cores + 1


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"sentence_pages": 5}, {"sentence_pages": "5"}),
        ({"sentence_pages": np.int64(5)}, {"sentence_pages": "5"}),
        ({"exemplars": np.int64(3)}, {"exemplars": 3}),
        ({"metrics": ["sink_share", "attention_to"]}, {"metrics": "sink_share,attention_to"}),
        ({"facet": ("genre", "label")}, {"facet": "genre,label"}),
        ({"control": ["untrained", "shuffled"]}, {"control": "untrained,shuffled"}),
        ({"device": ["cpu", "cpu"]}, {"device": "cpu,cpu"}),
        ({"model": Path("some/folder")}, {"model": "some/folder"}),
        ({"notes": "notes.md"}, {"notes": Path("notes.md")}),
    ],
)
def test_lists_numbers_and_paths_are_taken_where_they_make_sense(
    given: dict[str, Any], meant: dict[str, Any]
) -> None:
    """In Python; all but numbers of numpy in TOML, too."""
    for config in (Config.of(**given), Config(**given)):
        assert {name: getattr(config, name) for name in meant} == meant


def test_lists_are_taken_in_a_file_too(tmp_path: Path) -> None:
    lines = 'metrics = ["sink_share", "attention_to"]\nfacet = ["genre"]\nsentence-pages = 5\n'
    config = Config.of(written(tmp_path, lines))
    assert (config.metrics, config.facet) == ("sink_share,attention_to", "genre")
    assert config.sentence_pages == "5"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"metrics": [1]}, "metrics: got [1], expected text or a list of texts"),
        ({"metrics": []}, "metrics: got [], expected text or a list of texts"),
        ({"metrics": 5}, "metrics: got 5, expected text or a list of texts"),
        ({"sentence_pages": 2.5}, "sentence_pages: got 2.5, expected text"),
        ({"sentence_pages": True}, "sentence_pages: got True, expected text"),
        ({"exemplars": "3"}, "exemplars: got '3', expected a whole number"),
        ({"title": 5}, "title: got 5, expected text"),
        ({"model": ["a"]}, "model: got ['a'], expected text"),
        ({"quiet": 1}, "quiet: got 1, expected true or false"),
        ({"notes": 5}, "notes: got 5, expected a path"),
        ({"seed": -1}, "seed: got -1, expected 0 to 4294967295"),
        ({"seed": 99999999999999999999999},
         "seed: got 99999999999999999999999, expected at most 4,294,967,295"),
        ({"limit": 10**30}, f"limit: got {10**30}, expected at most 1,000,000,000"),
        ({"metrix": "all"}, "unknown option 'metrix'; did you mean 'metrics'?"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_one_line(given: dict[str, Any], message: str) -> None:
    assert fault(**given) == message


def test_the_library_refuses_wrong_options_as_it_promises() -> None:
    for wrong in ({"sentence_pages": 2.5}, {"metrics": [1]}, {"metrix": "all"}, {"seed": -1}):
        with pytest.raises(HeadbookError):
            headbook.collect("no.txt", "demo", **wrong)


def test_files_that_cannot_be_read_are_named_without_words_of_python(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read_notes(tmp_path / "no.md")
    expected = f"--notes: {tmp_path / 'no.md'}: No such file or directory; expected a Markdown or "
    assert str(caught.value) == f"{expected}TOML file in UTF-8"
    assert "No such file or directory; expected" in fault(tmp_path / "no.toml")
    deep = written(tmp_path, "model = " + "[" * 100_000)
    assert fault(deep) == "headbook.toml: nested too deeply; expected a TOML file of options"


def test_a_whole_number_stands_for_a_number(tmp_path: Path) -> None:
    assert Config.of(written(tmp_path, "margin = 1\n")).margin == 1.0
    assert Config.of(margin=0.25).margin == 0.25
    assert "a number" in fault(margin="0.1")
    assert "a number" in fault(margin=True)
