"""What heads say to the logits themselves, against passes in which all else is held by hooks."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
import torch
from test_ablator import KEYS, SMALL, TEXTS, Case, Naive, case, scored
from test_importance import asked, only

import tiny
from headbook.ablation.ablator import HeadAblator
from headbook.ablation.attribution import direct_effects_by_token, has_direct_path
from headbook.ablation.logit_targets import LogitTargets
from headbook.ablation.missed_tokens import top_token_sums
from headbook.schema import AblationTarget, HeadName, Replacement
from headbook.study.ablation.results import FULL
from headbook.study.ablation_tables import importance_table
from headbook.text.batch import Batch

__all__ = ["case"]
pytestmark = pytest.mark.usefixtures("of_any_number")
BLOCKS = {"bert": "output.dense", "gpt2": "mlp", "llama": "mlp", "bart": "fc2"}
STEP = 1e-4  # of the way to the replacement: the masked head's transform is no straight line


def with_logits(it: Case) -> Case:
    functions = it.ablator.functions
    assert isinstance(functions, LogitTargets)
    own = HeadAblator(
        it.ablator.heads, LogitTargets(functions.lens, functions.side, functions.mask, logits=True)
    )
    return it._replace(ablator=own)


class Held(Naive):
    """Passes in which feed-forward blocks and scales of norms are as they were."""

    def logits(self, number: int, z: dict[Any, np.ndarray]) -> np.ndarray:
        """Where all heads give what they are told to give."""
        kept: dict[int, Any] = {}
        with ExitStack() as hooks:
            for index, (module, kind) in enumerate(self._modules()):
                hooks.callback(module.register_forward_hook(self._keep(kept, index, kind)).remove)
            self.run(number, {})
        with ExitStack() as hooks:
            for index, (module, kind) in enumerate(self._modules()):
                hooks.callback(module.register_forward_hook(self._hold(kept, index, kind)).remove)
            for name, end in self.ends.items():
                give = torch.from_numpy(z[name])
                hooks.callback(
                    end.register_forward_pre_hook(
                        lambda _, given, give=give: (give.reshape(given[0].shape), *given[1:])
                    ).remove
                )
            logits: np.ndarray = self.model.run(self.rows(number)).logits[0].numpy()
        return logits

    def _modules(self) -> Iterator[tuple[Any, str]]:
        """Ends of feed-forward blocks, and norms."""
        block = BLOCKS[self.case.family]
        for name, module in self.model.network.named_modules():
            if name.endswith(block) and "attention" not in name:
                yield module, "block"
            elif type(module).__name__.endswith(("LayerNorm", "RMSNorm")):
                yield module, "norm"

    def _keep(self, kept: dict[int, Any], place: int, kind: str) -> Callable[..., None]:
        def keep(module: Any, given: Any, output: Any) -> None:
            kept[place] = output if kind == "block" else self._scale(module, given[0])

        return keep

    def _hold(self, kept: dict[int, Any], place: int, kind: str) -> Callable[..., Any]:
        def hold(module: Any, given: Any, _: Any) -> Any:
            if kind == "block":
                return kept[place]
            x = given[0]
            if isinstance(module, torch.nn.LayerNorm):
                return (x - x.mean(-1, keepdim=True)) / kept[place] * module.weight + module.bias
            return x / kept[place] * module.weight

        return hold

    def _scale(self, module: Any, x: torch.Tensor) -> Any:
        if isinstance(module, torch.nn.LayerNorm):
            return (x.var(-1, unbiased=False, keepdim=True) + module.eps).sqrt()
        return ((x**2).mean(-1, keepdim=True) + module.variance_epsilon).sqrt()


def centred(logits: np.ndarray, true: dict[int, int]) -> float:
    return float(sum(logits[i, t] - logits[i].mean() for i, t in true.items()))


def by_sentence(it: Case, batch: Batch) -> np.ndarray:
    """Direct effects of heads, each summed over the scored tokens of a sentence."""
    tokens = direct_effects_by_token(it.ablator, batch, Replacement.ZERO, it.means)
    rows = it.ablator.functions.scored(batch)[:, 0].numpy()
    return np.stack([tokens[rows == row].sum(0) for row in range(len(batch.index))])


@pytest.mark.parametrize("family", tiny.by_level(BLOCKS))
def test_direct_effects_equal_passes_in_which_all_else_is_held(
    family: str, case: Callable[..., Case]
) -> None:
    it = with_logits(case(family))
    assert has_direct_path(it.ablator.heads)
    batch, true = it.batches[0], scored(it)
    found = by_sentence(it, batch)
    held = Held(it, [[*row] if family == "bert" else [] for row in true])
    heads = asked(it, FULL).heads
    step = STEP if family == "bert" else 1.0
    for head in (heads[1], heads[-1], *[h for h in heads if h.stack == "cross"][:1]):
        for row, number in enumerate(batch.index):
            whole, z = held.run(int(number), {})
            part = slice(head.head * held.width, (head.head + 1) * held.width)
            z[head.stack, head.layer][:, part] *= 1 - step
            other = held.logits(int(number), z)
            value = (centred(other, true[number]) - centred(whole, true[number])) / step
            if head.stack == "encoder":
                value = 0.0  # its states reach the decoder as keys and values, which are held
            error = 1e-3 if family == "bert" else SMALL
            assert found[row, heads.index(head)] == pytest.approx(value, rel=error, abs=error)
    assert np.abs(found).max() > 1e-2


def test_parts_sum_to_the_logit(case: Callable[..., Case]) -> None:
    """Of a causal model: what all heads say, and what is left when none of them says anything."""
    it = with_logits(case("gpt2"))
    true = scored(it)
    found = by_sentence(it, it.batches[0])
    held = Held(it, [[] for _ in true])
    number = int(it.batches[0].index[0])
    whole, z = held.run(number, {})
    for each in z.values():
        each[:] = 0
    lost = centred(held.logits(number, z), true[number]) - centred(whole, true[number])
    assert found[0].sum() == pytest.approx(lost, abs=1e-9)


def test_self_repair_is_what_the_rest_makes_up_for(case: Callable[..., Case]) -> None:
    """Sums over sums, never cut to shares."""
    it = with_logits(case("llama"))
    ablation = asked(it, FULL).run()
    table = importance_table(ablation)
    head = HeadName("self", 0, 1)
    total = only(table, **head._asdict(), metric="ablation_effect", replacement="mean",
                 target=AblationTarget.LOGIT)  # fmt: skip
    direct = only(table, **head._asdict(), metric="direct_effect")
    repair = only(table, **head._asdict(), metric="self_repair", label="")
    assert total["verdict"] == ""
    expected = (total["value"] - direct["value"]) / -direct["value"]
    assert repair["value"] == pytest.approx(expected)
    assert total["n_sentences"] == direct["n_sentences"] == len(TEXTS)
    value = lost_logit(it, ablation, head)
    assert total["value"] == pytest.approx(value, rel=SMALL, abs=SMALL)


def test_self_repair_on_the_tokens_for_which_a_head_says_most(case: Callable[..., Case]) -> None:
    """Against passes token by token; the threshold is that of the other half's tokens."""
    it = with_logits(case("llama"))
    ablation = asked(it, FULL).run()
    table = importance_table(ablation)
    true, head = scored(it), HeadName("self", 0, 1)
    naive, held = Naive(it, [[] for _ in true]), Held(it, [[] for _ in true])
    part = slice(head.head * held.width, (head.head + 1) * held.width)
    found: dict[int, list[tuple[float, float]]] = {0: [], 1: []}
    for number in range(len(TEXTS)):
        r = naive.instead(head, number, Replacement.MEAN)
        whole, z = held.run(number, {})
        changed = naive.run(number, {head: r})[0]
        z[head.stack, head.layer][:, part] = r
        alone = held.logits(number, z)
        for i, t in true[number].items():
            total, direct = (centred(x, {i: t}) - centred(whole, {i: t}) for x in (changed, alone))
            found[int(KEYS[number] % 2)].append((total, direct))
    top = []
    for half, others in ((0, 1), (1, 0)):
        least = np.quantile([-direct for _, direct in found[others]], 0.98)
        top += [each for each in found[half] if -each[1] > least]
    assert top
    total, direct = np.sum(top, 0)
    row = only(table, **head._asdict(), metric="self_repair", label="top_2_percent")
    assert row["value"] == pytest.approx((total - direct) / -direct, rel=1e-3)
    assert row["n_observations"] == len(top)


def lost_logit(it: Case, ablation: Any, head: HeadName) -> float:
    true = scored(it)
    naive = Naive(it, [[] for _ in true])
    lost = tokens = 0.0
    for number in range(len(TEXTS)):
        r = {head: naive.instead(head, number, Replacement.MEAN)}
        whole, changed = naive.run(number, {})[0], naive.run(number, r)[0]
        lost += centred(changed, true[number]) - centred(whole, true[number])
        tokens += len(true[number])
    return lost / tokens


def test_top_tokens_begin_where_the_other_half_says() -> None:
    """Two per cent of the other half; what equals its threshold is left out."""
    direct = -np.array([*range(50), *([49.0] * 50)], dtype=float)[:, None]
    sentence = np.repeat([0, 1], 50)
    total = direct / 2
    sums = top_token_sums(total, direct, sentence, np.array([0, 1]))
    assert sums[2].tolist() == [[0], [50]]  # above 48.02, and above 49
    assert sums[1].tolist() == [[0], [-49 * 50]]
    assert sums[0].tolist() == [[0], [-49 * 25]]
    alone = top_token_sums(total[:50], direct[:50], sentence[:50], np.array([0, 1]))
    assert not alone.any()  # nothing tells the threshold
