"""Sentences joined into passages: texts, words, trees, documents and faults."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import treebank
from headbook.errors import ConfigError
from headbook.inputs import NO_HEAD, open_corpus
from headbook.model.load import Model, load_model
from headbook.model.packing import Passages, pack_sentences, separator, without_separators
from headbook.model.tokenizer import SentenceTokenizer
from headbook.pages.parts.passages import proposals
from headbook.report.results import stack_results
from headbook.run.collect import collect
from headbook.schema import Side, SinkView
from headbook.study.study import Study
from headbook.text.annotate import Annotator
from headbook.text.tokens import TokenizedSentence

Folder = Callable[[str], Path]


@pytest.fixture(scope="module")
def model(tiny_folder: Folder) -> Model:
    return load_model(str(tiny_folder("bert")))


def joined(file: Path, model: Model, most: int) -> Passages:
    return pack_sentences(open_corpus([file]), model, most, 64)


def encoded(passages: Passages, model: Model, annotator: str = "none") -> list[TokenizedSentence]:
    encoder = SentenceTokenizer(model, limit=64, targets=Annotator.load("none"))
    return [*encoder.tokenize(Annotator.load(annotator).annotate(passages))]


@pytest.mark.parametrize(
    ("family", "between"),
    [("bert", "[SEP] "), ("roberta", "</s> "), ("t5", "</s> "), ("gpt2", " "), ("llama", " ")],
)
def test_sentences_are_separated_as_the_tokenizer_ends_texts(
    family: str, between: str, tiny_folder: Folder
) -> None:
    assert separator(load_model(str(tiny_folder(family))).tokenizer) == between


@pytest.mark.parametrize("most", [8, 20, 40, 64])
@pytest.mark.parametrize("family", ["bert", "gpt2", "roberta"])
def test_passages_hold_every_sentence_once_and_no_more_tokens_than_asked(
    family: str, most: int, tiny_folder: Folder, tmp_path: Path
) -> None:
    model = load_model(str(tiny_folder(family)))
    passages = joined(treebank.write_trees(tmp_path / "a.conllu"), model, most)
    texts = [p.text[a:b] for p in passages for a, b in p.parts or [(0, len(p.text))]]
    assert texts == [treebank.text_of(tree) for tree in treebank.TREES]
    for item in encoded(passages, model):
        assert item.length <= most or not item.sentence.parts
    assert [passage.index for passage in passages] == list(range(len(passages)))


def test_no_passage_could_have_taken_the_next_sentence_too(model: Model, tmp_path: Path) -> None:
    passages = [*joined(treebank.write_trees(tmp_path / "a.conllu"), model, 40)]
    assert any(len(p.parts) > 1 for p in passages)
    for p, after in pairwise(passages):
        following = after.text[slice(*after.parts[0])] if after.parts else after.text
        assert len(model.tokenizer(f"{p.text}[SEP] {following}")["input_ids"]) > 40


def test_words_tags_and_trees_stay_those_of_their_sentences(model: Model, tmp_path: Path) -> None:
    (passage,) = joined(treebank.write_trees(tmp_path / "a.conllu", treebank.TREES[:2]), model, 64)
    gold = [word for tree in treebank.TREES[:2] for word in tree]
    words = passage.words or ()
    assert [passage.text[w.start : w.end] for w in words] == [w.form for w in gold]
    assert [(w.upos, w.relation) for w in words] == [(w.tag, w.relation) for w in gold]
    first = len(treebank.TREES[0])
    heads = [NO_HEAD if w.head <= 0 else w.head - 1 for w in treebank.TREES[0]]
    heads += [NO_HEAD if w.head <= 0 else w.head - 1 + first for w in treebank.TREES[1]]
    assert [w.head for w in words] == heads
    bare = without_separators(passage)
    assert "[SEP]" in passage.text
    assert bare.text == passage.text.replace("[SEP] ", " ")
    assert [bare.text[w.start : w.end] for w in bare.words or ()] == [w.form for w in gold]
    assert [bare.text[slice(*part)] for part in bare.parts] == [
        passage.text[slice(*part)] for part in passage.parts
    ]


def test_each_token_knows_its_sentence_and_separators_are_special(
    model: Model, tmp_path: Path
) -> None:
    file = treebank.write_trees(tmp_path / "a.conllu", treebank.TREES[:3])
    (item,) = encoded(joined(file, model, 64), model)
    tokens = item.tokens[Side.SOURCE]
    n_words = [len(tree) for tree in treebank.TREES[:3]]
    sentence = [n for n, count in enumerate(n_words) for _ in range(count)]
    for index, word in enumerate(tokens.word):
        if word >= 0:
            assert tokens.part[index] == sentence[word]
    inner = tokens.separator[:-1]
    assert int(inner.sum()) == 2
    assert tokens.special[:-1][inner].all()


def test_an_annotator_sees_sentences_one_by_one(model: Model, tmp_path: Path) -> None:
    texts = ["The dog sees the cat.", "Old dogs sleep."]
    (tmp_path / "a.txt").write_text("\n".join(texts) + "\n")
    (item,) = encoded(joined(tmp_path / "a.txt", model, 64), model, "embedded")
    alone = [*Annotator.load("embedded").words(texts)]
    words = item.sentence.words or ()
    start, before = item.sentence.parts[1][0], len(alone[0])
    assert words[:before] == alone[0]
    for word, own in zip(words[before:], alone[1], strict=True):
        assert (word.start, word.end) == (own.start + start, own.end + start)
        assert word.upos == own.upos
        assert word.head == (own.head if own.head == NO_HEAD else own.head + before)


def sizes(file: Path, model: Model) -> list[int]:
    return [*joined(file, model, 64).sizes]


def test_documents_begin_where_the_input_says_so(model: Model, tmp_path: Path) -> None:
    blocks = [f"# text = cat\n{head}1\tcat\t_\tNOUN\t_\t_\t0\troot\t_\t_\n" for head in
              ("# newdoc id = a\n", "", "# newdoc\n", "", "")]  # fmt: skip
    (tmp_path / "a.conllu").write_text("\n".join(blocks))
    assert sizes(tmp_path / "a.conllu", model) == [2, 3]
    rows = "text,document\ncat,a\ndog,a\nbird,b\n"
    (tmp_path / "a.csv").write_text(rows)
    assert sizes(tmp_path / "a.csv", model) == [2, 1]
    (tmp_path / "a.txt").write_text("cat\ndog\nbird\n")
    assert sizes(tmp_path / "a.txt", model) == [3]
    both = pack_sentences(open_corpus([tmp_path / "a.txt", tmp_path / "a.csv"]), model, 64, 64)
    assert both.sizes == (3, 2, 1)


def test_a_passage_keeps_what_its_sentences_agree_on(model: Model, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,document,id,genre,year\ncat,a,x1,n,1\ndog,a,x2,n,2\n")
    (passage,) = joined(tmp_path / "a.csv", model, 64)
    assert passage.id == "x1 … x2"
    assert dict(passage.metadata) == {"document": "a", "genre": "n"}


@pytest.mark.parametrize(
    ("pack", "message"),
    [(0, "pack: got 0, expected at least 1"), (65, "pack: got 65, expected at most 64")],
)
def test_a_size_that_does_not_fit_is_known_in_one_line(
    pack: int, message: str, tiny_folder: Folder, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        collect(treebank.write_trees(tmp_path / "a.conllu"), model=str(tiny_folder("bert")),
                pack=pack)  # fmt: skip


def test_pairs_are_not_joined(tiny_folder: Folder, tmp_path: Path) -> None:
    file = treebank.write_pairs(tmp_path / "a.jsonl")
    with pytest.raises(ConfigError, match="pack: got source-target pairs, expected texts"):
        collect(file, model=str(tiny_folder("bart")), pack=40)


def test_passages_of_one_sentence_are_told(tiny_folder: Folder, tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "annotator": "none", "metrics": "same_sentence_preference", "importance": "off",
        "circuits": "off",
    }  # fmt: skip
    file = treebank.write_trees(tmp_path / "a.conllu")
    study = collect(file, model=str(tiny_folder("bert")), pack=4, **options)
    assert study.manifest.counts["sentences"] == len(treebank.TREES)
    assert "two sentences that fit into 4 tokens" in study.manifest.gaps[0].why


def test_shown_texts_keep_where_sentences_begin(tiny_folder: Folder, tmp_path: Path) -> None:
    file = treebank.write_trees(tmp_path / "a.conllu")
    study = collect(file, model=str(tiny_folder("bert")), pack=40, annotator="none",
                    metrics="sink_share", importance="off", circuits="off")  # fmt: skip
    study.save(tmp_path / "study")
    again = type(study).load(tmp_path / "study")
    texts = [s.texts[Side.SOURCE] for s in again.sentence_data.sentences.values()]
    assert any(len(text.parts) > 1 for text in texts)
    assert again.sentence_data.sentences == study.sentence_data.sentences


@pytest.fixture(scope="module")
def passages_study(tiny_folder: Folder, tmp_path_factory: pytest.TempPathFactory) -> Study:
    """Passages of the treebank, with what heads write."""
    file = treebank.write_trees(tmp_path_factory.mktemp("passages") / "a.conllu")
    metrics = "segmentation,context_similarity,row_similarity"
    return collect(
        file, model=str(tiny_folder("bert")), pack=40, metrics=metrics, annotator="none",
        importance="off", circuits="off",
    )  # fmt: skip


def test_pages_divide_a_passage_as_rules_do(passages_study: Study) -> None:
    (found,) = stack_results(passages_study).values()
    drawn = 0
    for (_, index), marks in passages_study.sentence_data.ends.items():
        (text,) = passages_study.sentence_data.sentences[index].texts.values()
        each = proposals(found, text, marks)
        drawn += len(each) > 0
        for proposal in each:
            # Nothing of the text is lost, and separators stand there once.
            letters = "".join(t.before + t.text for tokens, _ in proposal.pieces for t in tokens)
            assert letters.replace(" ", "") == f"[CLS]{text.text}[SEP]".replace(" ", "")
            ends = [end for _, end in proposal.pieces]
            assert ends.count("right") + ends.count("missed") == len(text.parts) - 1
            counts = [ends.count(kind) for kind in ("right", "wrong", "missed")]
            assert counts == [proposal.right, proposal.wrong, proposal.missed]
        stops = each[2]
        for tokens, end in stops.pieces:
            if end in {"right", "wrong"}:
                assert tokens[-1].text in {".", "!", "?"}
    assert drawn > 1


def test_f1_of_a_rule_follows_from_what_pages_draw(passages_study: Study) -> None:
    """The rules that know no model: twice the right ends over all that are said and are there."""
    (found,) = stack_results(passages_study).values()
    for number, rule in ((2, "punctuation"), (3, "even")):
        above = below = 0
        for (_, index), marks in passages_study.sentence_data.ends.items():
            (text,) = passages_study.sentence_data.sentences[index].texts.values()
            proposal = proposals(found, text, marks)[number]
            above += 2 * proposal.right
            below += 2 * proposal.right + proposal.wrong + proposal.missed
        value = found.layers("segmentation", SinkView.RAW, f"f1:{rule}").value
        assert value == pytest.approx([above / below] * len(value))
