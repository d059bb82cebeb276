"""Datasets of Hugging Face: folders without network, ids read once."""

import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_input_memory import peak

from headbook.errors import ConfigError, InputError
from headbook.inputs import Corpus, InputLayout, Selection, open_corpus

datasets = pytest.importorskip("datasets", reason="the extra 'datasets' is not installed")

CARD = """---
dataset_info:
  features:
  - {name: text, dtype: string}
  - {name: label, dtype: {class_label: {names: {'0': neg, '1': pos}}}}
  - {name: n, dtype: int32}
  splits:
  - {name: train, num_examples: 20}
---
"""
TEXTS = [f"sentence {number}" for number in range(20)]


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test may find a network, or what another has left."""
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.chdir(tmp_path)


def dataset(texts: list[str], column: str = "text", **more: Any) -> Any:
    classes = datasets.ClassLabel(names=["neg", "pos"])
    columns = {column: datasets.Value("string"), "label": classes, "n": datasets.Value("int32")}
    numbers = [*range(len(texts))]
    rows = {column: texts, "label": [n % 2 for n in numbers], "n": numbers}
    extra = {name: kind for name, (kind, _) in more.items()}
    return datasets.Dataset.from_dict(
        rows | {name: values for name, (_, values) in more.items()},
        features=datasets.Features(columns | extra),
    )


def hub_folder(folder: Path, **splits: Any) -> Path:
    """Parquet files as the hub lays them out; the first split in two."""
    (folder / "data").mkdir(parents=True)
    for split, data in splits.items():
        for shard in range(2):
            name = f"{split}-{shard:05}-of-00002.parquet"
            data.shard(2, shard, contiguous=True).to_parquet(folder / "data" / name)
    return folder


def read(name: str | Path, **layout: str) -> Corpus:
    return open_corpus([name], layout=InputLayout(**layout))


def fault(name: str | Path, **layout: str) -> str:
    with pytest.raises(InputError) as error:
        read(name, **layout)
    assert "\n" not in str(error.value)
    assert "; expected " in str(error.value)
    return str(error.value)


def saved(folder: Path, data: Any) -> Path:
    data.save_to_disk(folder)
    return folder


def test_a_saved_dataset_is_read_row_by_row(tmp_path: Path) -> None:
    with read(saved(tmp_path / "mine", dataset(TEXTS))) as corpus:
        first, again = [*corpus], [*corpus]
        assert first == again
        assert [s.text for s in first] == TEXTS
        assert first[3].metadata == {"label": "pos", "n": "3"}
        assert first[3].origin == "mine:4"
        [file] = corpus.files
        assert (file.name, file.sentences, file.blank, file.left) == ("mine", 20, 0, 0)


def test_a_folder_in_the_layout_of_the_hub_is_read(tmp_path: Path) -> None:
    folder = hub_folder(tmp_path / "mine", train=dataset(TEXTS[:15]), test=dataset(TEXTS[15:]))
    with read(folder) as corpus:
        assert [s.text for s in corpus] == [s.text for s in corpus] == TEXTS[:15]
        assert corpus.files[0].name == "mine (train)"
        assert {s.metadata["label"] for s in corpus} == {"neg", "pos"}
    with read(folder, split="test") as corpus:
        assert [s.text for s in corpus] == TEXTS[15:]
        assert corpus.files[0].name == "mine (test)"


def test_both_kinds_of_folders_have_the_same_hash(tmp_path: Path) -> None:
    data = dataset(TEXTS)
    one, two = saved(tmp_path / "one", data), hub_folder(tmp_path / "two", train=data)
    other = saved(tmp_path / "three", dataset(TEXTS[::-1]))
    hashes = [read(folder).files[0].sha256 for folder in (one, two, other)]
    assert hashes[0] == hashes[1] != hashes[2]


def test_the_only_split_needs_no_name(tmp_path: Path) -> None:
    both = datasets.DatasetDict(dev=dataset(TEXTS[:5]), test=dataset(TEXTS[5:]))
    folder = saved(tmp_path / "both", both)
    assert len(read(folder, split="dev")) == 5
    message = fault(folder)
    assert message == f"{folder}: splits 'dev', 'test'; expected one of them by --split"
    assert fault(folder, split="train").endswith("splits 'dev', 'test'; expected 'train'")
    only = saved(tmp_path / "only", datasets.DatasetDict(dev=dataset(TEXTS)))
    assert read(only).files[0].name == "only (dev)"


def test_another_column_may_hold_the_text(tmp_path: Path) -> None:
    target = (datasets.Value("int32"), [1] * 20)
    folder = saved(tmp_path / "mine", dataset(TEXTS, "sentence", target=target))
    with read(folder, text_column="sentence") as corpus:
        assert [s.text for s in corpus] == TEXTS
        assert {s.target for s in corpus} == {None}
        assert next(iter(corpus)).metadata == {"label": "neg", "n": "0", "target": "1"}
    with read(folder) as corpus:
        assert [s.text for s in corpus] == TEXTS
        assert next(iter(corpus)).metadata == {"label": "neg", "n": "0", "target": "1"}
    other = saved(tmp_path / "other", dataset(TEXTS, "body"))
    assert fault(other).startswith("other:1: columns 'body', 'label', 'n'; expected a")
    assert "expected a column 'words', as --text-column says" in fault(folder, text_column="words")
    assert fault(folder, text_column="n").startswith("mine:1: n = 0; expected text")


def test_rows_without_text_are_blank(tmp_path: Path) -> None:
    """Nobody can mend a dataset of the hub for one of them."""
    data = dataset(["one", "", None, " \n", "two"])  # type: ignore[list-item]
    with read(saved(tmp_path / "mine", data)) as corpus:
        assert [(s.text, s.origin) for s in corpus] == [("one", "mine:1"), ("two", "mine:5")]
        assert corpus.files[0].blank == 3


def test_a_row_without_a_class_has_none(tmp_path: Path) -> None:
    """The hub's test splits hide their labels behind -1."""
    data = dataset(TEXTS[:2]).map(lambda row: row | {"label": -1 if row["n"] else 1})
    with read(saved(tmp_path / "mine", data)) as corpus:
        assert [s.metadata.get("label") for s in corpus] == ["pos", None]


def test_pictures_are_not_looked_at(tmp_path: Path) -> None:
    broken = [{"bytes": b"no picture", "path": None}] * 20
    many = (datasets.List(datasets.Image()), [broken[:1]] * 20)
    data = dataset(TEXTS, picture=(datasets.Image(), broken), pictures=many)
    for folder in (saved(tmp_path / "one", data), hub_folder(tmp_path / "two", train=data)):
        with read(folder) as corpus:
            assert next(iter(corpus)).metadata == {"label": "neg", "n": "0"}
            assert len(corpus) == 20


def test_parts_of_a_dataset(tmp_path: Path) -> None:
    folder = saved(tmp_path / "mine", dataset(TEXTS))
    with open_corpus([folder], Selection(limit=3)) as corpus:
        assert [s.text for s in corpus] == TEXTS[:3]
        assert corpus.files[0].left == 17
    (tmp_path / "a.txt").write_text("\n".join(TEXTS))
    with (
        open_corpus([folder], Selection(sample=3)) as corpus,
        open_corpus([tmp_path / "a.txt"], Selection(sample=3)) as plain,
    ):
        assert [s.text for s in corpus] == [s.text for s in plain]
        assert corpus.files[0].left == 17


@pytest.mark.parametrize(("expected", "left"), [(20, 10), (5, None)])
def test_a_dataset_may_say_how_many_rows_it_has(
    tmp_path: Path, expected: int, left: int | None
) -> None:
    """In its README, as those of the hub do; one that is wrong is not believed."""
    folder = hub_folder(tmp_path / "mine", train=dataset(TEXTS))
    (folder / "README.md").write_text(CARD.replace("20", str(expected)))
    with open_corpus([folder], Selection(limit=10)) as corpus:
        assert corpus.files[0].left == left


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["saved", "hub"])
def test_memory_does_not_grow_with_a_dataset(tmp_path: Path, kind: str) -> None:
    """Of files in the layout of the hub, the library holds one at a time."""
    peaks = []
    for number, size in enumerate((1000, 1000, 10_000)):  # the first loads what is used
        data = datasets.Dataset.from_dict({"text": [f"{n} {'x' * 400}" for n in range(size)]})
        folder = tmp_path / str(number)
        if kind == "saved":
            data.save_to_disk(folder)
        else:
            folder.mkdir()
            for shard in range(size // 500):
                part = data.shard(size // 500, shard, contiguous=True)
                part.to_parquet(folder / f"train-{shard:05}.parquet")
        del data
        peaks.append(peak(folder, Selection()))
    assert peaks[2] < 1.25 * peaks[1], peaks


def test_a_folder_without_a_dataset_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    assert fault(tmp_path / "none").startswith(f"{tmp_path / 'none'}: a dataset that cannot be")
    folder = hub_folder(tmp_path / "mine", train=dataset(TEXTS))
    assert "--subset names one of several" in fault(folder, subset="other")
    kept = saved(tmp_path / "kept", dataset(TEXTS))
    next(kept.glob("*.arrow")).write_bytes(b"nothing")
    assert fault(kept).startswith(f"{kept}: a dataset that cannot be opened")
    assert "--subset=x for a folder that save_to_disk" in fault(kept, subset="x")


NAMED = """---
configs:
- config_name: default
  data_files: ["{}"]
---
"""


@pytest.fixture
def private(tmp_path: Path) -> Path:
    """A file of the reader, outside every dataset."""
    (tmp_path / "private").mkdir()
    (tmp_path / "private/secret.txt").write_text("a secret\n")
    return tmp_path / "private/secret.txt"


@pytest.mark.parametrize("card", ["README.md", ".huggingface.yaml"])
@pytest.mark.parametrize(
    "name", ["{private}", "../private/secret.txt", "../private/*.txt", "link.txt"]
)
def test_a_card_leads_to_no_file_outside_its_folder(
    tmp_path: Path, private: Path, card: str, name: str
) -> None:
    folder = tmp_path / "stranger"
    folder.mkdir()
    (folder / "link.txt").symlink_to(private)
    text = NAMED.format(name.format(private=private))
    (folder / card).write_text(text if card == "README.md" else text.strip("-\n"))
    message = fault(folder)
    assert "secret.txt" in message or "link.txt" in message
    assert "names of files inside the dataset" in message


def test_a_link_that_a_dataset_would_read_is_refused(tmp_path: Path, private: Path) -> None:
    (tmp_path / "stranger").mkdir()
    (tmp_path / "stranger/train.txt").symlink_to(private)
    assert "train.txt" in fault(tmp_path / "stranger")


def test_a_card_names_files_of_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep/a.txt").write_text("the cat sees a dog\n")
    (folder / "README.md").write_text(NAMED.format("deep/*.txt"))
    with read(folder) as corpus:
        assert [sentence.text for sentence in corpus] == ["the cat sees a dog"]


def test_links_of_the_cache_of_the_hub_are_followed(tmp_path: Path) -> None:
    repository = tmp_path / "datasets--owner--name"
    folder = repository / "snapshots/1"
    for each in (folder, repository / "blobs"):
        each.mkdir(parents=True)
    (repository / "blobs/abc").write_text("the cat sees a dog\n")
    (folder / "train.txt").symlink_to("../../blobs/abc")
    with read(folder) as corpus:
        assert [sentence.text for sentence in corpus] == ["the cat sees a dog"]


@pytest.mark.parametrize("way", ["split", "absolute split", "file", "absolute file", "link"])
def test_a_saved_dataset_leads_to_no_file_outside_its_folder(tmp_path: Path, way: str) -> None:
    other = saved(tmp_path / "private", dataset(["a secret"]))
    arrow = next(other.glob("*.arrow"))
    folder = saved(tmp_path / "stranger", dataset(TEXTS))
    if "split" in way:
        shutil.rmtree(folder)
        folder.mkdir()
        split = str(other) if "absolute" in way else "../private"
        (folder / "dataset_dict.json").write_text(json.dumps({"splits": [split]}))
    elif way == "link":
        mine = next(folder.glob("*.arrow"))
        mine.unlink()
        mine.symlink_to(arrow)
    else:
        state = json.loads((folder / "state.json").read_text())
        file = str(arrow) if "absolute" in way else f"../private/{arrow.name}"
        (folder / "state.json").write_text(
            json.dumps(state | {"_data_files": [{"filename": file}]})
        )
    assert "names of files inside the dataset" in fault(folder)


def test_a_dataset_of_the_hub_leads_to_no_file_of_this_machine(
    private: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = SimpleNamespace(data_files={"train": [str(private)]})
    monkeypatch.setattr(datasets, "load_dataset_builder", lambda *_: SimpleNamespace(config=config))
    assert f"names {private}" in fault("owner/name")


def test_damage_is_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = hub_folder(tmp_path / "mine", train=dataset(TEXTS))
    first, second = sorted(folder.rglob("*.parquet"))
    capfd.readouterr()
    for file, place in (
        (second, "mine (train): a dataset that cannot be read to its end ("),
        (first, f"{folder}"),
    ):
        file.write_bytes(b"PAR1" + b"x" * 100)
        assert fault(folder).startswith(place)
    assert capfd.readouterr().err == ""


def test_an_id_that_cannot_be_reached_is_one_line() -> None:
    assert fault("somebody/something").startswith(
        "somebody/something: a dataset that cannot be opened (Couldn't reach 'somebody/something'"
    )
    for name in ("something", "a/b/c", "a/b.txt", "/a/b"):
        assert fault(name).startswith(f"{name}: no such file")


def test_an_id_that_was_loaded_before_needs_no_network(tmp_path: Path) -> None:
    """The library's cache answers, which is made here as the hub's dataset would leave it."""
    folder = hub_folder(tmp_path / "name", train=dataset(TEXTS))
    cache = tmp_path / "cache"
    datasets.load_dataset(str(folder), cache_dir=str(cache))
    (cache / "name").rename(cache / "owner___name")
    shutil.rmtree(folder)
    with read("owner/name") as corpus:
        assert [s.text for s in corpus] == TEXTS
        assert corpus.files[0].name == "owner/name (train)"


def test_an_id_is_read_once_and_no_further_than_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub itself cannot be asked here: a folder answers in its place."""
    folder = hub_folder(tmp_path / "mine", train=dataset(TEXTS))
    read_rows: list[int] = []
    files = {"train": ["hf://datasets/owner/name@1/train.parquet"]}

    def hub(name: str, subset: str | None) -> Any:
        assert (name, subset) == ("owner/name", "part")
        found = datasets.load_dataset(str(folder), streaming=True)

        def seen(row: dict[str, Any]) -> dict[str, Any]:
            read_rows.append(row["n"])
            return row

        split = found["train"]
        found["train"] = split.map(seen, features=split.features)
        config = SimpleNamespace(data_files=files)
        return SimpleNamespace(config=config, as_streaming_dataset=lambda: found)

    local = read(folder)
    monkeypatch.setattr(datasets, "load_dataset_builder", hub)
    layout = InputLayout(subset="part")
    with open_corpus(["owner/name"], layout=layout) as corpus:
        assert [s.text for s in corpus] == [s.text for s in corpus] == TEXTS
        assert [s.metadata for s in corpus] == [s.metadata for s in local]
        assert corpus.files[0].name == "owner/name (part, train)"
        assert corpus.files[0].sha256 == local.files[0].sha256
    assert read_rows == [*range(20)]
    read_rows.clear()
    with open_corpus(["owner/name"], Selection(sample=3), layout) as corpus:
        assert len([*corpus]) == len([*corpus]) == 3
    assert read_rows == [*range(20)]
    monkeypatch.setattr("headbook.inputs.huggingface.BATCH_ROWS", 4)
    read_rows.clear()
    with open_corpus(["owner/name"], Selection(limit=3), layout) as corpus:
        assert [s.text for s in corpus] == [s.text for s in corpus] == TEXTS[:3]
        assert corpus.files[0].left is None
    assert read_rows == [*range(4)]


def test_without_the_library_a_folder_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert fault(tmp_path).endswith("its library: pip install 'headbook[datasets]'")
    assert fault("owner/name").startswith("owner/name: no such file; expected a file, or a dataset")


def test_options_for_inputs_that_are_not_there_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    (tmp_path / "a.jsonl").write_text('{"words": "one", "target": 1}\n')
    for name in ("text_column", "split", "subset"):
        option = "--" + name.replace("_", "-")
        with pytest.raises(ConfigError, match=f"{option}: got 'x' with other inputs, expected"):
            read(tmp_path / "a.txt", **{name: "x"})
    with read(tmp_path / "a.jsonl", text_column="words") as corpus:
        assert [(s.text, s.target, s.metadata) for s in corpus] == [("one", None, {"target": "1"})]
