"""Targets of tasks, against one text, one head and one plain hook at a time, in float64."""

import hashlib
import json
from collections.abc import Callable, Sequence
from functools import cache
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
)

import headbook
import tiny
from headbook.schema import Replacement
from headbook.study.ablation.effect_tests import estimated_effects, head_effects
from headbook.study.ablation.results import AblationResults, HeadSetKind

FEW: dict[str, Any] = {
    "annotator": "none", "language": "none", "sentence_pages": "0", "metrics": "type_shares",
    "dtype": "float64", "importance": "full", "circuits": "off", "control": "none",
}  # fmt: skip
ENDS = {  # output projections of heads, by layer
    "gpt2": "transformer.h.{}.attn.c_proj",
    "llama": "model.layers.{}.self_attn.o_proj",
    "bert": "bert.encoder.layer.{}.attention.output.dense",
}
SMALL = 1e-5  # llama's own softmax is in single precision
LABELS = ("animal", "plant", "thing")
NOUNS = ("cat", "dog", "bird", "house", "garden", "fisherman")
WORDS = ("sees", "small", "old", "the", "fisher")  # with a space before, one token each
HEAD_WIDTH = tiny.WIDTH // tiny.HEADS
PLACES = [(layer, head) for layer in range(tiny.LAYERS) for head in range(tiny.HEADS)]


class Naive(NamedTuple):
    """A model without the package, and what a study says of one of its tasks."""

    network: Any
    tokenizer: Any
    task: AblationResults
    rows: list[dict[str, str]]
    end: str

    def logits(self, text: str | Sequence[int], without: tuple[int, int] | None = None) -> Any:
        """Logits of one text; the output of a head is zero."""
        ids = self.tokenizer(text)["input_ids"] if isinstance(text, str) else list(text)
        handle = None
        if without is not None:
            layer, head = without

            def silence(_: Any, given: tuple[Any, ...]) -> Any:
                z = given[0].clone()
                z[..., head * HEAD_WIDTH : (head + 1) * HEAD_WIDTH] = 0
                return (z, *given[1:])

            end = self.network.get_submodule(self.end.format(layer))
            handle = end.register_forward_pre_hook(silence)
        try:
            with torch.no_grad():
                return self.network(input_ids=torch.tensor([ids])).logits[0]
        finally:
            if handle is not None:
                handle.remove()

    def changes(self, target: str, place: tuple[int, int]) -> dict[int, float]:
        """What the study says of a head whose output is zero, by the hash of the row."""
        sets = self.task.select(HeadSetKind.HEAD, Replacement.ZERO)
        (column,) = (k for k in sets if self.task.sets[k].name == "L{}-H{}".format(*place))
        hashes = (int(each) for each in self.task.content_hash)
        return dict(zip(hashes, self.task.changes[target][:, column], strict=True))

    def key(self, *texts: str) -> int:
        """The hash of a row of the results."""
        rows = [np.array(self.tokenizer(text)["input_ids"], np.int64) for text in texts]
        content = b"|".join(row.tobytes() for row in rows)
        return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big")

    def agrees(self, target: str, number: Callable[..., float], texts: Callable[..., Any]) -> None:
        """Compare every row and head: the number of the whole model minus that without the head."""
        whole = [number(row, None) for row in self.rows]
        for place in PLACES:
            found = self.changes(target, place)
            assert len(found) == len(self.rows)
            for row, value in zip(self.rows, whole, strict=True):
                expected = value - number(row, place)
                assert found[self.key(*texts(row))] == pytest.approx(expected, rel=SMALL, abs=SMALL)


def pair_rows() -> list[dict[str, str]]:
    """Sentences that differ in the order of words, some of several pieces."""
    return [
        {"text": text, "pair_id": f"{one}-{other}", "label": label}
        for one, other in list(permutations(NOUNS, 2))[::4]
        for text, label in (
            (f"the small {one} sees the {other}", "acceptable"),
            (f"the small {one} sees {other} the old", "unacceptable"),
        )
    ]


def prompt_rows(mask: str = "") -> list[dict[str, str]]:
    return [
        {"text": f"the {one} dog {other} {mask}".strip(), "answer": one, "wrong": other}
        for one, other in list(permutations(WORDS, 2))[::3]
    ]


def label_rows(*, by_token: bool = False) -> list[dict[str, str]]:
    texts = [f"the {one} sees {other}" for one, other in list(permutations(NOUNS, 2))[::3]]
    return [
        {
            "text": text,
            "label": " ".join(LABELS[(number + k) % 3] for k in range(4))
            if by_token
            else LABELS[number % 3],
        }
        for number, text in enumerate(texts)
    ]


@pytest.fixture(scope="module")
def naive(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Naive]:
    @cache
    def make(family: str, task: str, level: str = "full") -> Naive:
        path = tmp_path_factory.mktemp(f"{family}-{task}")
        by_token = task == "tokens"
        loader = classifier_loader(task)
        tiny.write(family, path / "model", head=loader is None)
        tokenizer = AutoTokenizer.from_pretrained(path / "model")
        if loader is not None:
            torch.manual_seed(1)
            names = dict(enumerate(LABELS))
            made: Any = loader.from_pretrained(
                path / "model", num_labels=len(LABELS), id2label=names
            )
            head: Any = getattr(made, "score", None) or getattr(made, "classifier", None)
            with torch.no_grad():
                head.weight.normal_()
            made.save_pretrained(path / "model")
        name = "label" if loader is not None else task
        makers: dict[str, Callable[[], list[dict[str, str]]]] = {
            "label": lambda: label_rows(by_token=by_token),
            "preference": pair_rows,
            "answer": lambda: prompt_rows(tokenizer.mask_token or ""),
        }
        rows = makers[name]()
        (path / "texts.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        options = FEW | {"importance": level, "task": name}
        study = headbook.collect([path / "texts.jsonl"], model=str(path / "model"), **options)
        lm_loader: Any = AutoModelForMaskedLM if family == "bert" else AutoModelForCausalLM
        network = (loader or lm_loader).from_pretrained(path / "model", dtype=torch.float64)
        results = study.corpus_sums.tasks[name]
        return Naive(network.eval(), tokenizer, results, rows, ENDS[family])

    return make


def classifier_loader(task: str) -> Any:
    """The class of a classifier, or None for other tasks."""
    return {
        "label": AutoModelForSequenceClassification,
        "tokens": AutoModelForTokenClassification,
    }.get(task)


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama"])
def test_labels_of_texts_have_their_cross_entropy_and_accuracy(
    family: str, naive: Callable[..., Naive]
) -> None:
    it = naive(family, "label")

    def cross_entropy(row: dict[str, str], place: tuple[int, int] | None) -> float:
        return float(it.logits(row["text"], place).log_softmax(-1)[LABELS.index(row["label"])])

    def right(row: dict[str, str], place: tuple[int, int] | None) -> float:
        return float(int(it.logits(row["text"], place).argmax()) == LABELS.index(row["label"]))

    it.agrees("label", cross_entropy, lambda row: [row["text"]])
    it.agrees("accuracy", right, lambda row: [row["text"]])
    total = sum(cross_entropy(row, None) for row in it.rows)
    assert it.task.unablated["label"].sum() == pytest.approx(-total, rel=SMALL, abs=SMALL)
    assert it.task.unablated["accuracy"].sum() == sum(right(row, None) for row in it.rows)
    counts = {name: it.task.truth[name].sum() for name in LABELS}
    assert counts == {name: sum(row["label"] == name for row in it.rows) for name in LABELS}


def test_labels_of_tokens_stand_at_the_first_piece_of_each_word(
    naive: Callable[..., Naive],
) -> None:
    it = naive("bert", "tokens")

    def cross_entropy(row: dict[str, str], place: tuple[int, int] | None) -> float:
        logs = it.logits(row["text"], place).log_softmax(-1)
        words = it.tokenizer(row["text"]).word_ids()
        labels = row["label"].split()
        return sum(
            float(logs[words.index(word), LABELS.index(label)]) for word, label in enumerate(labels)
        )

    it.agrees("label", cross_entropy, lambda row: [row["text"]])
    assert (it.task.counts["label"] == 4).all()


def preference(it: Naive, row: dict[str, str], place: tuple[int, int] | None) -> float:
    """Log probability of the acceptable sentence minus that of the other one."""
    score = pseudo_log_likelihood if it.tokenizer.mask_token else log_probability
    acceptable, other = members(it, row)
    return score(it, acceptable, place) - score(it, other, place)


def log_probability(it: Naive, text: str, place: tuple[int, int] | None) -> float:
    ids = it.tokenizer(text)["input_ids"]
    logs = it.logits(ids, place).log_softmax(-1)
    return sum(float(logs[i - 1, ids[i]]) for i in range(1, len(ids)))


def pseudo_log_likelihood(it: Naive, text: str, place: tuple[int, int] | None) -> float:
    """Word by word; all pieces of the word are masked."""
    ids, words = it.tokenizer(text)["input_ids"], it.tokenizer(text).word_ids()
    total = 0.0
    for word in {word for word in words if word is not None}:
        hidden = [
            it.tokenizer.mask_token_id if w == word else t for t, w in zip(ids, words, strict=True)
        ]
        logs = it.logits(hidden, place).log_softmax(-1)
        total += sum(float(logs[i, ids[i]]) for i, w in enumerate(words) if w == word)
    return total


def members(it: Naive, row: dict[str, str]) -> list[str]:
    texts = {r["label"]: r["text"] for r in it.rows if r["pair_id"] == row["pair_id"]}
    return [texts["acceptable"], texts["unacceptable"]]


@pytest.mark.parametrize("family", ["gpt2", "llama", "bert"])
def test_preferences_are_differences_of_summed_log_probabilities(
    family: str, naive: Callable[..., Naive]
) -> None:
    it = naive(family, "preference")
    pairs = [row for row in it.rows if row["label"] == "acceptable"]
    pieces = [
        it.tokenizer.convert_ids_to_tokens(it.tokenizer(row["text"])["input_ids"]) for row in pairs
    ]
    assert max(map(len, pieces)) > min(map(len, pieces))  # words of one and of several pieces
    whole = [preference(it, row, None) for row in pairs]
    for place in PLACES:
        found = it.changes("preference", place)
        assert len(found) == len(pairs)
        for row, value in zip(pairs, whole, strict=True):
            expected = value - preference(it, row, place)
            assert found[it.key(*members(it, row))] == pytest.approx(expected, rel=SMALL, abs=SMALL)
    unablated = dict(
        zip(map(int, it.task.content_hash), it.task.unablated["preference"], strict=True)
    )
    for row, value in zip(pairs, whole, strict=True):
        assert unablated[it.key(*members(it, row))] == pytest.approx(value, rel=SMALL, abs=SMALL)


@pytest.mark.parametrize("family", ["gpt2", "llama", "bert"])
def test_answers_are_differences_of_logits_at_the_last_token_or_the_mask(
    family: str, naive: Callable[..., Naive]
) -> None:
    it = naive(family, "answer")

    def difference(row: dict[str, str], place: tuple[int, int] | None) -> float:
        ids = it.tokenizer(row["text"])["input_ids"]
        mask = it.tokenizer.mask_token_id
        position = ids.index(mask) if mask is not None else len(ids) - 1
        tokens = [first_token(it, row["text"], row[name]) for name in ("answer", "wrong")]
        logits = it.logits(ids, place)[position]
        return float(logits[tokens[0]] - logits[tokens[1]])

    it.agrees("answer", difference, lambda row: [row["text"]])


def first_token(it: Naive, text: str, answer: str) -> int:
    ids = it.tokenizer(text)["input_ids"]
    if it.tokenizer.mask_token:
        return int(it.tokenizer(answer, add_special_tokens=False)["input_ids"][0])
    return int(it.tokenizer(f"{text} {answer}")["input_ids"][len(ids)])


@pytest.mark.parametrize(
    ("family", "task"),
    [("bert", "label"), ("gpt2", "preference"), ("bert", "preference"), ("gpt2", "answer")],
)
def test_estimates_are_slopes_of_the_penalty(
    family: str, task: str, naive: Callable[..., Naive]
) -> None:
    """The output of a head is scaled by 1 minus a little, as on the way to zero."""
    it, small = naive(family, task), 1e-5
    estimates = estimated_effects(it.task, task, Replacement.ZERO)
    for index, (_, layer, head) in enumerate(it.task.heads):
        numbers = []
        for factor in (1 - small, 1 + small):
            end = it.network.get_submodule(it.end.format(layer))
            weight = end.weight.T if family == "bert" else end.weight  # Conv1D is (in, out)
            part = slice(head * HEAD_WIDTH, (head + 1) * HEAD_WIDTH)
            with torch.no_grad():
                kept = weight[part].clone()
                weight[part] *= factor
                numbers.append(mean_number(it, task))
                weight[part] = kept
        slope = (numbers[1] - numbers[0]) / (2 * small)
        assert estimates[index] == pytest.approx(slope, rel=1e-3, abs=1e-6)


def mean_number(it: Naive, task: str) -> float:
    """The mean over rows of the number that is better if it is larger."""
    numbers = []
    for row in it.rows:
        if task == "label":
            logs = it.logits(row["text"]).log_softmax(-1)
            numbers.append(float(logs[LABELS.index(row["label"])]))
        elif task == "answer":
            answer, wrong = (
                first_token(it, row["text"], row[name]) for name in ("answer", "wrong")
            )
            logits = it.logits(row["text"])[-1]
            numbers.append(float(logits[answer] - logits[wrong]))
        elif row["label"] == "acceptable":
            numbers.append(preference(it, row, None))
    return float(np.mean(numbers))


def test_means_of_pairs_come_from_both_sentences_of_the_other_half(
    naive: Callable[..., Naive],
) -> None:
    """The mean output of the first token, of which all texts have one, and of the others."""
    it = naive("gpt2", "preference")
    sets = it.task.select(HeadSetKind.HEAD, Replacement.MEAN)
    (column,) = (k for k in sets if it.task.sets[k].name == "L1-H2")
    half = {int(key): int(key) & 1 for key in it.task.content_hash}
    pairs = [members(it, row) for row in it.rows if row["label"] == "acceptable"]
    end = it.network.get_submodule(it.end.format(1))
    part = slice(2 * HEAD_WIDTH, 3 * HEAD_WIDTH)
    outputs: dict[str, Any] = {}
    for text in {text for pair in pairs for text in pair}:
        taken: list[Any] = []
        handle = end.register_forward_pre_hook(
            lambda _, given, to=taken: to.append(given[0].clone())
        )
        it.logits(text)
        handle.remove()
        outputs[text] = taken[0][0, :, part]

    def score(text: str, own: int) -> float:
        others = [outputs[t] for pair in pairs if half[it.key(*pair)] != own for t in pair]
        first = torch.stack([z[0] for z in others]).mean(0)
        rest = torch.cat([z[1:] for z in others]).mean(0)

        def change(_: Any, given: tuple[Any, ...]) -> Any:
            z = given[0].clone()
            z[0, 0, part], z[0, 1:, part] = first, rest
            return (z, *given[1:])

        handle = end.register_forward_pre_hook(change)
        try:
            return log_probability(it, text, None)
        finally:
            handle.remove()

    changes = it.task.changes["preference"][:, column]
    found = dict(zip(map(int, it.task.content_hash), changes, strict=True))
    assert {*half.values()} == {0, 1}
    for pair in pairs:
        own = half[it.key(*pair)]
        whole = [log_probability(it, text, None) for text in pair]
        without = [score(text, own) for text in pair]
        expected = (whole[0] - whole[1]) - (without[0] - without[1])
        assert found[it.key(*pair)] == pytest.approx(expected, abs=1e-6)


def test_the_auto_level_takes_growing_sets_of_the_largest_heads(
    naive: Callable[..., Naive],
) -> None:
    it = naive("gpt2", "answer", "auto")
    growing = [it.task.sets[k] for k in it.task.select(HeadSetKind.ORDER)]
    assert [each.number for each in growing] == [*range(1, 9)]
    assert {each.name for each in growing} == {"reversed"}
    effects = head_effects(it.task, "answer", "mean")
    selected = it.task.half == 0
    single = it.task.select(HeadSetKind.HEAD, "mean")
    changes = it.task.changes["answer"][selected][:, single].sum(0)
    best = it.task.heads[it.task.first_heads(single)[int(np.argmax(changes))]]
    (first,) = (k for k in it.task.select(HeadSetKind.ORDER) if it.task.sets[k].number == 1)
    assert it.task.heads[int(it.task.members[first].argmax())] == best
    assert len(effects) == len(PLACES)
