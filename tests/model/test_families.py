"""Every architecture on a tiny random model: what is read is what the model computed."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

import tiny
import treebank
from bare_model import Bare
from headbook.model.embedding import FAMILIES
from headbook.run.collect import collect
from headbook.schema import ModelKind, Side
from headbook.study.study import Study

Folder = Callable[[str], Path]
SLOW = pytest.mark.slow

# What every tokenizer puts around a text, and what sort of model it is.
PATTERNS = {
    "bert": ("[CLS] … [SEP]", ModelKind.ENCODER),
    "roberta": ("<s> … </s>", ModelKind.ENCODER),
    "distilbert": ("[CLS] … [SEP]", ModelKind.ENCODER),
    "albert": ("[CLS] … [SEP]", ModelKind.ENCODER),
    "electra": ("[CLS] … [SEP]", ModelKind.ENCODER),
    "electra_small": ("[CLS] … [SEP]", ModelKind.ENCODER),
    "deberta": ("[CLS] … [SEP]", ModelKind.ENCODER),
    "deberta_v3": ("[CLS] … [SEP]", ModelKind.ENCODER),
    "modernbert": ("[CLS] … [SEP]", ModelKind.ENCODER),
    "gpt2": ("…", ModelKind.DECODER),
    "gpt_neox": ("…", ModelKind.DECODER),
    "gpt_neox_serial": ("…", ModelKind.DECODER),
    "opt": ("</s> …", ModelKind.DECODER),
    "opt_after": ("</s> …", ModelKind.DECODER),
    "llama": ("<s> …", ModelKind.DECODER),
    "mistral": ("<s> …", ModelKind.DECODER),
    "qwen2": ("…", ModelKind.DECODER),
    "gemma3": ("<bos> …", ModelKind.DECODER),
    "gpt_oss": ("<s> …", ModelKind.DECODER),
    "t5": ("… </s>", ModelKind.ENCODER_DECODER),
    "bart": ("<s> … </s>", ModelKind.ENCODER_DECODER),
    "marian": ("… </s>", ModelKind.ENCODER_DECODER),
    "phi": ("…", ModelKind.DECODER),
    "gpt_neo": ("…", ModelKind.DECODER),
    "mpnet": ("<s> … </s>", ModelKind.ENCODER),
}
GROUPED = {"llama", "mistral", "qwen2", "gemma3", "gpt_oss"}
# Families that add positions, or have a norm, before layer 0.
ENCODED = {
    "bert", "roberta", "distilbert", "albert", "electra", "electra_small", "deberta", "deberta_v3",
    "modernbert", "gpt2", "opt", "opt_after", "bart", "marian",
}  # fmt: skip
ROWS = "rows of attention sum to 1"
CAUSAL = "no attention to later positions"
HEADS = "head outputs + bias = attention block output"
MID = "mid state through the model's own next step = its next state"
PARTS = "other tokens' part + own part + biases = state after attention"
LEARNED = {
    "rows of attention + share of the learned sink = 1",
    "weights times values = what heads give, the learned sink nothing",
}
OWN = "attention = the model's own, each text alone"
START = "original encoding of a token = what enters layer 0"
LOGITS = "last layer through norm and head = the model's logits"
SUMMED = "direct contributions of embedding, heads and feed-forward blocks add up to the logits"
ADDED_UP = {"t5"}  # with a language-model head and no norms behind blocks
FINAL = "final output = output of the model without the hook"


@pytest.fixture(scope="module")
def study(tiny_folder: Folder, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Study]:
    """A study of a family, on sentences with their trees or on pairs."""

    @cache
    def of(name: str, dtype: str = "float64") -> Study:
        folder = tmp_path_factory.mktemp("input")
        pairs = tiny.ALL[name].pairs
        file = treebank.write_input(folder, pairs=pairs)
        return collect(file, model=str(tiny_folder(name)), dtype=dtype, annotator="none")

    return of


def test_every_row_of_the_table_has_a_tiny_model() -> None:
    tested = {model.type for model in tiny.IN_TABLE.values()}
    # The same code as one tested; Gemma 4 is compared with Gemma 3.
    others = {"xlm-roberta", "camembert", "qwen3", "gemma", "gemma2", "gemma4_text"}
    assert set().union(*(family.types for family in FAMILIES)) == tested | others
    assert PATTERNS.keys() == tiny.ALL.keys()


@pytest.mark.parametrize("name", tiny.by_level(tiny.IN_TABLE))
def test_every_self_check_of_a_known_family_runs_and_passes(
    name: str, study: Callable[..., Study]
) -> None:
    manifest = study(name).manifest
    expected = {(FINAL, "")}
    for stack in manifest.stacks:
        rows = LEARNED if stack.learned_sink else {ROWS}
        expected |= {(name, stack.name) for name in {*rows, OWN, HEADS, MID}}
        if not stack.crosses:
            expected.add((PARTS, stack.name))
        if stack.causal:
            expected.add((CAUSAL, stack.name))
        if name in ENCODED:
            expected.add((START, stack.name))
        if stack.name == "decoder":  # the tiny models of one stack come without a head
            expected.add((LOGITS, stack.name))
            if name in ADDED_UP:
                expected.add((SUMMED, ""))
    assert {(check.name, check.stack) for check in manifest.checks} == expected
    assert [check for check in manifest.checks if not check.passed] == []


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "name", tiny.by_level(["modernbert", "mistral", "gemma3", "gpt2", "marian"])
)
def test_self_checks_pass_in_other_number_formats(
    name: str, dtype: str, study: Callable[..., Study]
) -> None:
    assert [check for check in study(name, dtype).manifest.checks if not check.passed] == []


@pytest.mark.parametrize("name", tiny.by_level(tiny.ALL))
def test_sizes_and_special_tokens_are_found_by_watching(
    name: str, study: Callable[..., Study]
) -> None:
    manifest = study(name).manifest
    assert (manifest.model.special_tokens, manifest.model.kind) == PATTERNS[name]
    names = ["encoder", "decoder", "cross"] if tiny.ALL[name].pairs else ["self"]
    assert [stack.name for stack in manifest.stacks] == names
    for stack in manifest.stacks:
        assert (stack.n_layers, stack.n_heads) == (tiny.LAYERS, tiny.HEADS)
        assert stack.n_key_heads == (2 if name in GROUPED else tiny.HEADS)
        assert stack.attention_layers == (0, 1)
        assert stack.causal == (stack.name == "decoder" or PATTERNS[name][1] is ModelKind.DECODER)
        assert stack.head_width == tiny.WIDTH // tiny.HEADS


@pytest.mark.parametrize("name", tiny.by_level(tiny.ALL))
def test_no_number_of_a_study_is_infinite_and_every_head_has_one(
    name: str, study: Callable[..., Study]
) -> None:
    heads = study(name).heads
    assert not heads["value"].isin([float("inf"), -float("inf")]).any()
    shares = heads[(heads["metric"] == "sink_share")]
    expected = sum(tiny.LAYERS * tiny.HEADS for _ in study(name).manifest.stacks)
    assert len(shares) == expected
    assert shares["value"].notna().all()


@pytest.mark.soak
def test_a_family_that_nobody_named_has_all_that_one_of_the_table_has(
    study: Callable[..., Study],
) -> None:
    """Compared with one of the table that adds no positions at its input either."""
    unknown, known = study("phi"), study("gpt_neox")
    assert {gap.what for gap in unknown.manifest.gaps} == {gap.what for gap in known.manifest.gaps}
    assert set(unknown.tokens["state"]) == {"mid", "out"}
    assert set(unknown.tokens["metric"]) == set(known.tokens["metric"])
    checks = {check.name for check in unknown.manifest.checks}
    assert checks == {ROWS, OWN, CAUSAL, FINAL, HEADS, MID, PARTS}
    assert all(check.passed for check in unknown.manifest.checks)


@pytest.mark.parametrize("name", tiny.by_level(tiny.FALLBACK))
def test_a_family_outside_the_interface_lacks_nothing_of_its_attention(
    name: str, study: Callable[..., Study]
) -> None:
    manifest = study(name).manifest
    gaps = {gap.what for gap in manifest.gaps}
    assert not gaps & {"queries, keys and values", "states after attention", "importance of heads"}
    assert not any("values" in gap for gap in gaps)
    assert set(study(name).tokens["state"]) == {"mid", "out"}
    assert (MID, "self") in {(check.name, check.stack) for check in manifest.checks}
    assert HEADS in {check.name for check in manifest.checks}
    assert manifest.model.attention == "eager, seen by a hook"
    assert all(check.passed for check in manifest.checks)


@pytest.mark.parametrize(
    "name", ["t5", pytest.param("bart", marks=SLOW), pytest.param("marian", marks=SLOW)]
)
def test_a_missing_target_is_what_greedy_decoding_writes(
    name: str, tiny_folder: Folder, tmp_path: Path
) -> None:
    file = tmp_path / "sources.txt"
    file.write_text("the old dog sees a bird\nwater\n", encoding="utf-8")
    study = collect(
        file, model=str(tiny_folder(name)), dtype="float64", annotator="none",
        metrics="sink_share", importance="off", circuits="off",
    )  # fmt: skip
    bare = Bare.load(tiny_folder(name), pairs=True)
    config = bare.network.config
    for sentence, text in enumerate(["the old dog sees a bird", "water"]):
        (source,) = bare.ids(text)
        written = [config.decoder_start_token_id]
        for _ in range(64):
            best = int(bare.run([source, written]).logits[0, -1].argmax())
            if best in {config.eos_token_id, config.pad_token_id}:
                break
            written.append(best)
        stored_text = study.sentence_data.sentences[sentence].texts[Side.TARGET]
        assert stored_text.generated
        assert len(stored_text.pieces) == len(written)
        assert stored_text.text == bare.tokenizer.decode(written, skip_special_tokens=True)
        assert stored_text.special[0]
    assert study.manifest.count(Side.TARGET, "generated") == 2
