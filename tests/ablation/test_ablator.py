"""What is lost without a head, against one sentence, one head and one plain hook at a time."""

import hashlib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.special
import torch
from numpy.typing import NDArray

import tiny
from bare_model import Bare, bare_with_head
from headbook.ablation.ablator import BatchEffects, HeadAblator
from headbook.ablation.logit_targets import LogitTargets, target_functions
from headbook.ablation.replacements import REPLACEMENTS, DonorOutputs, LayerOutputs, MeanOutputs
from headbook.attention.masks import BatchMask
from headbook.inputs import TextRecord
from headbook.model.architecture import AttentionPlace, probe_architecture
from headbook.model.intervention import make_patchable
from headbook.model.load import load_model
from headbook.model.logit_lens import LogitLens, make_logit_lens
from headbook.schema import AblationTarget, AttentionStack, HeadName, Replacement, Side
from headbook.text.batch import Batch, PaddedTexts
from headbook.text.tokens import TokenizedSentence
from layers import Marks

Floats = NDArray[np.float64]
TEXTS = (
    ("the old dog sees the small bird in the garden .", "a red house , the cat ."),
    ("water", "red bird"),
    ("un ##happi fisher sings and sleeps near water !", "the old dog runs ."),
    ("the cat and the bird sleep", "a garden near the house"),
    ("a red house runs ?", "the fisher sees the bird and the dog ."),
)
KEYS = np.array([2, 5, 9, 12, 7], dtype=np.uint64)  # halves 0, 1, 1, 0, 1
FAMILIES = ("bert", "gpt2", "llama", "bart")  # masked, causal, grouped queries, pairs
SMALL = 1e-5  # llama's own softmax is in single precision


class Case(NamedTuple):
    """A tiny model whose heads can be taken away, and some sentences."""

    ablator: HeadAblator
    batches: list[Batch]
    folder: Path
    family: str

    @property
    def means(self) -> MeanOutputs:
        """Of all batches."""
        means = MeanOutputs()
        for batch in self.batches:
            means += self.ablator.means(batch)
        return means

    def effects(self, sets: Sequence[Sequence[HeadName]], replacement: Replacement) -> BatchEffects:
        """Of all batches."""
        means = self.means
        parts = [self.ablator.effects(b, sets, replacement, means) for b in self.batches]
        return BatchEffects.merge(parts)


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Case]:
    @cache
    def of(family: str, *, head: bool = True) -> Case:
        path = tmp_path_factory.mktemp("model") / family
        folder = tiny.write(family, path, head=head)
        model = load_model(str(folder), dtype="float64")
        architecture = probe_architecture(model)
        lens = make_logit_lens(model, architecture)
        bare = Bare.load(folder, pairs=tiny.ALL[family].pairs)
        batches = [batch_of(bare, family, rows) for rows in ((0, 1, 2), (3, 4))]
        heads = make_patchable(model, architecture, batches[0])
        side = architecture.stacks[heads.read].queries
        functions = target_functions(
            lens if isinstance(lens, LogitLens) else None, side, model.tokenizer.mask_token_id
        )
        return Case(HeadAblator(heads, functions), batches, folder, family)

    return of


def ids_of(bare: Bare, family: str, number: int) -> list[list[int]]:
    return bare.ids(*TEXTS[number][: 2 if tiny.ALL[family].pairs else 1])


def specials(bare: Bare, row: Sequence[int]) -> list[int]:
    t = bare.tokenizer
    kept = {t.unk_token_id, t.mask_token_id}
    return [i for i, token in enumerate(row) if token in {*t.all_special_ids} - kept]


def batch_of(bare: Bare, family: str, numbers: Sequence[int]) -> Batch:
    sentences = [ids_of(bare, family, number) for number in numbers]
    sides = list(Side)[: len(sentences[0])]
    tokens = [
        {
            side: Marks(len(row), ids=row, special=specials(bare, row)).tokens()
            for side, row in zip(sides, ids, strict=True)
        }
        for ids in sentences
    ]
    texts = {
        side: PaddedTexts.of([each[side] for each in tokens], torch.device("cpu"), torch.float64)
        for side in sides
    }
    items = tuple(
        TokenizedSentence(TextRecord(number, "", TEXTS[number][0]), each)
        for number, each in zip(numbers, tokens, strict=True)
    )
    return Batch(items, texts, np.array(numbers), KEYS[list(numbers)])


class Naive:
    """One sentence at a time; heads are cut out of what goes into output projections."""

    def __init__(self, case: Case, masked: Sequence[Sequence[int]]) -> None:
        self.case, self.masked = case, masked
        self.architecture = case.ablator.heads.architecture
        own = dict(case.ablator.heads.model.base_model.named_modules())
        self.model = bare_with_head(case.folder, case.family)
        names = {
            place: next(n for n, m in own.items() if m is projection.module)
            for place, projection in self.architecture.ends.projections.items()
        }
        body = self.model.network.base_model
        self.ends = {place: body.get_submodule(name) for place, name in names.items()}
        self.width = next(iter(self.architecture.stacks.values())).head_width

    def rows(self, number: int) -> list[list[int]]:
        """Tokens as the model reads them."""
        rows = ids_of(self.model, self.case.family, number)
        mask = self.model.tokenizer.mask_token_id
        return [[mask if i in self.masked[number] else t for i, t in enumerate(rows[0])], *rows[1:]]

    def run(self, number: int, without: dict[HeadName, Floats]) -> tuple[Floats, dict[Any, Floats]]:
        """Logits, and what went into each projection before it was changed."""
        taken: dict[Any, Floats] = {}

        def hook(place: tuple[str, int]) -> Callable[..., Any]:
            def change(_: Any, given: tuple[Any, ...]) -> Any:
                z = given[0].reshape(-1, given[0].shape[-1])
                taken[place] = z.numpy().copy()
                for head, r in without.items():
                    if (head.stack, head.layer) == place:
                        z[:, head.head * self.width : (head.head + 1) * self.width] = (
                            torch.from_numpy(r)
                        )
                return (z.reshape(given[0].shape), *given[1:])

            return change

        handles = [end.register_forward_pre_hook(hook(p)) for p, end in self.ends.items()]
        try:
            logits = self.model.run(self.rows(number)).logits[0].numpy()
        finally:
            for handle in handles:
                handle.remove()
        return logits, taken

    def group(self, head: HeadName, number: int, replacement: Replacement) -> list[int]:
        """Class or position of each query token."""
        side = self.architecture.stacks[head.stack].queries
        row = self.rows(number)[-1 if side is Side.TARGET else 0]
        if replacement is Replacement.POSITION_MEAN:
            return list(range(len(row)))
        special = specials(
            self.model,
            ids_of(self.model, self.case.family, number)[-1 if side is Side.TARGET else 0],
        )
        return [0 if i == 0 else 1 if i in special else 2 for i in range(len(row))]

    def instead(self, head: HeadName, number: int, replacement: Replacement) -> Floats:
        """What stands in place of a head's output in a sentence."""
        own = self.group(head, number, replacement)
        if replacement is Replacement.ZERO:
            return np.zeros((len(own), self.width))
        others = [n for n in range(len(TEXTS)) if KEYS[n] % 2 != KEYS[number] % 2]
        z: list[Floats] = []
        groups: list[int] = []
        for other in others:
            _, taken = self.run(other, {})
            part = slice(head.head * self.width, (head.head + 1) * self.width)
            z.extend(taken[head.stack, head.layer][:, part])
            groups.extend(self.group(head, other, replacement))
        table = np.array(z)
        chosen = [[i for i, g in enumerate(groups) if g == mine] or range(len(z)) for mine in own]
        return np.array([table[list(places)].mean(0) for places in chosen])


def scored(case: Case) -> list[dict[int, int]]:
    """The tokens that are scored, by place, of every sentence; as the judge says."""
    found: dict[int, dict[int, int]] = {}
    functions = case.ablator.functions
    assert isinstance(functions, LogitTargets)
    for batch in case.batches:
        read = functions.prepare_batch(batch)
        side = functions.side
        for row, number in enumerate(batch.index):
            ids, valid = batch.texts[side].ids[row], batch.texts[side].valid[row]
            n = int(valid.sum())
            if functions.mask is None:
                found[int(number)] = {i: int(ids[i + 1]) for i in range(n - 1)}
            else:
                changed = (read.texts[side].ids[row] == functions.mask) & valid
                found[int(number)] = {i: int(ids[i]) for i in range(n) if changed[i]}
    return [found[number] for number in range(len(TEXTS))]


@pytest.mark.parametrize(
    "replacement", [Replacement.MEAN, Replacement.ZERO, Replacement.POSITION_MEAN]
)
@pytest.mark.parametrize("family", FAMILIES)
def test_effects_equal_plain_hooks_sentence_by_sentence(
    family: str, replacement: Replacement, case: Callable[..., Case]
) -> None:
    it = case(family)
    places = [(c.stack, c.layer) for c in it.ablator.heads.architecture.calls]
    sets = [[HeadName(*place, 1)] for place in places]
    sets += [[HeadName(*places[0], 0), HeadName(*places[-1], 3)]]
    effects = it.effects(sets, replacement)
    true = scored(it)
    masked = [[*row] if family == "bert" else [] for row in true]
    naive = Naive(it, masked)
    order = np.argsort(KEYS)
    loss_name, kl_name = it.ablator.functions.targets
    assert effects.counts[loss_name].tolist() == [len(true[n]) for n in order]
    for row, number in enumerate(order):
        whole, _ = naive.run(number, {})
        logs = scipy.special.log_softmax(whole, -1)
        loss = sum(-logs[i, t] for i, t in true[number].items())
        assert effects.full[loss_name][row] == pytest.approx(loss, rel=SMALL, abs=SMALL)
        for column, heads in enumerate(sets):
            r = {head: naive.instead(head, number, replacement) for head in heads}
            changed, _ = naive.run(number, r)
            other = scipy.special.log_softmax(changed, -1)
            lost = sum(logs[i, t] - other[i, t] for i, t in true[number].items())
            kl = sum(float((np.exp(logs[i]) * (logs[i] - other[i])).sum()) for i in true[number])
            assert effects.changes[loss_name][row, column] == pytest.approx(
                lost, rel=SMALL, abs=SMALL
            )
            assert effects.changes[kl_name][row, column] == pytest.approx(kl, rel=SMALL, abs=SMALL)
    assert np.abs(effects.changes[loss_name]).max() > 1e-3


@pytest.mark.parametrize("family", FAMILIES)
def test_resampled_heads_borrow_from_sentences_of_similar_length(
    family: str, case: Callable[..., Case]
) -> None:
    """The mean over three draws; position by position, the last token where a donor is shorter."""
    it = case(family)
    call = it.ablator.heads.architecture.calls[-1]
    head = HeadName(call.stack, call.layer, 2)
    others = DonorOutputs.of(it.ablator.heads, it.ablator.functions, it.batches, {call})
    parts = [
        it.ablator.effects(b, [[head]], Replacement.RESAMPLE, MeanOutputs(), donors=others)
        for b in it.batches
    ]
    effects, true = BatchEffects.merge(parts), scored(it)
    naive = Naive(it, [[*row] if family == "bert" else [] for row in true])
    z = [naive.run(number, {})[1][head.stack, head.layer][:, 16:24] for number in range(len(TEXTS))]
    digest = [
        [
            hashlib.blake2b(
                b"".join(int(k).to_bytes(8, "big") for k in two), digest_size=8
            ).digest()
            for two in ((one, other) for other in KEYS)
        ]
        for one in KEYS
    ]
    for row, number in enumerate(np.argsort(KEYS)):
        donors = sorted({*range(len(TEXTS))} - {number}, key=lambda k: digest[number][k])[:3]
        logs = scipy.special.log_softmax(naive.run(number, {})[0], -1)
        lost = []
        for donor in donors:
            places = [min(i, len(z[donor]) - 1) for i in range(len(z[number]))]
            other = scipy.special.log_softmax(naive.run(number, {head: z[donor][places]})[0], -1)
            lost.append(sum(logs[i, t] - other[i, t] for i, t in true[number].items()))
        loss = it.ablator.functions.targets[0]
        assert effects.changes[loss][row, 0] == pytest.approx(np.mean(lost), rel=SMALL, abs=SMALL)


def test_donors_are_different_sentences_at_least_as_long_if_there_are_any() -> None:
    call, key = AttentionPlace("self", 0), np.arange(40, dtype=np.uint64)
    length = np.repeat(np.arange(2, 22), 2)
    output = torch.arange(40.0)[:, None, None, None].expand(40, 21, 1, 1)
    others = DonorOutputs(key, {call: length}, {call: output})
    for own in key:
        drawn = [others.donor_output(call, key[[own]], 3, draw)[0, 0, 0, 0] for draw in range(3)]
        donors = [int(each) for each in drawn]
        assert len({*donors, int(own)}) == 4
        apart = length[donors] - length[int(own)]
        assert (apart >= 0).all() or length[int(own)] > 16
        assert (np.abs(apart) <= 10).all()


def test_without_a_head_of_words_states_are_compared(case: Callable[..., Case]) -> None:
    it = case("bert", head=False)
    assert it.ablator.functions.targets == (AblationTarget.STATE, AblationTarget.EMBEDDING)
    effects = it.effects([[HeadName("self", 0, 2)]], Replacement.ZERO)
    bare = Bare.load(it.folder)
    layer = bare.network.encoder.layer[0].attention.output.dense
    for row, number in enumerate(np.argsort(KEYS)):
        ids = bare.ids(TEXTS[number][0])

        def cut(_: Any, given: tuple[Any, ...]) -> Any:
            z = given[0].clone()
            z[..., 16:24] = 0
            return (z,)

        one = bare.run(ids).last_hidden_state[0].numpy()
        handle = layer.register_forward_pre_hook(cut)
        other = bare.run(ids).last_hidden_state[0].numpy()
        handle.remove()
        tokens = [
            1 - a @ b / np.linalg.norm(a) / np.linalg.norm(b)
            for a, b in zip(one, other, strict=True)
        ]
        a, b = one.mean(0), other.mean(0)
        text = 1 - a @ b / np.linalg.norm(a) / np.linalg.norm(b)
        assert effects.changes[AblationTarget.STATE][row, 0] == pytest.approx(sum(tokens), abs=1e-9)
        assert effects.changes[AblationTarget.EMBEDDING][row, 0] == pytest.approx(text, abs=1e-9)
        assert effects.counts[AblationTarget.STATE][row] == len(one)
        assert effects.counts[AblationTarget.EMBEDDING][row] == 1


@pytest.mark.parametrize("causal", [False, True])
def test_replacements_of_a_sentence_itself_equal_loops(causal: bool) -> None:
    """Grouped queries; padding; the sink is special tokens and, in causal stacks, position 0."""
    rng = np.random.default_rng(5)
    n, heads, shared, width = 6, 4, 2, 3
    lengths, special = (6, 4), ({0, 5}, {0, 3})
    seen = np.zeros((2, n, n), dtype=bool)
    for s, length in enumerate(lengths):
        seen[s, :, :length] = True
    seen &= np.tri(n, dtype=bool) if causal else True
    weights = rng.random((2, heads, n, n)) * seen[:, None]
    weights /= weights.sum(-1, keepdims=True)
    value = rng.normal(size=(2, shared, n, width))
    z = np.einsum("shqk,shkw->sqhw", weights, value.repeat(heads // shared, 1))
    marks = [
        Marks(m, special=sorted(places)).tokens()
        for m, places in zip(lengths, special, strict=True)
    ]
    texts = PaddedTexts.of(marks, torch.device("cpu"), torch.float64)
    stack = AttentionStack("self", 1, (0,), heads, shared, width, causal, Side.SOURCE, Side.SOURCE)
    frame = BatchMask(stack, texts, texts, torch.from_numpy(seen))
    given = LayerOutputs(*map(torch.from_numpy, (weights, value, z)))
    found = {kind: make(given, frame).numpy() for kind, make in REPLACEMENTS.items()}
    for s, length in enumerate(lengths):
        sink = special[s] | ({0} if causal else set())
        for q in range(length):
            keys = [k for k in range(length) if seen[s, q, k]]
            for h in range(heads):
                v, a = value[s, h // 2], weights[s, h, q]
                held = [k for k in keys if k in sink]
                only = sum(a[k] * v[k] for k in held) / sum(a[k] for k in held)
                wanted = {
                    Replacement.ZERO: np.zeros(width),
                    Replacement.UNIFORM: sum(v[k] for k in keys) / len(keys),
                    Replacement.WITHOUT_SINK: sum(
                        (a[k] * v[k] for k in keys if k not in sink), np.zeros(width)
                    ),
                    Replacement.SINK_ONLY: only,
                }
                for kind, expected in wanted.items():
                    np.testing.assert_allclose(found[kind][s, q, h], expected, atol=1e-12)


def turned_round(value: Any) -> Any:
    """Sentences in the opposite order; what is of all of them as it is."""
    return value.flip(0) if torch.is_tensor(value) else value


def test_masked_tokens_are_the_same_wherever_a_sentence_stands(case: Callable[..., Case]) -> None:
    """Some of every sentence, ordinary ones alone, by the hash of its content."""
    it = case("bert")
    assert all(1 <= len(row) <= 3 for row in scored(it))
    (first, _), functions = it.batches, it.ablator.functions
    turned = Batch(
        (),
        {
            side: PaddedTexts(
                *(turned_round(getattr(texts, name)) for name in texts.__dataclass_fields__)
            )
            for side, texts in first.texts.items()
        },
        first.index[::-1],
        first.content_hash[::-1],
    )
    one, other = (functions.prepare_batch(b).texts[Side.SOURCE].ids for b in (first, turned))
    assert torch.equal(one, other.flip(0))
    special = first.texts[Side.SOURCE].special
    assert torch.equal(one[special], first.texts[Side.SOURCE].ids[special])
