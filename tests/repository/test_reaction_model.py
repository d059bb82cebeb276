"""A truth from outside: one head of a model of chemical reactions maps atoms, as its authors say.

Schwaller et al. (2021, doi:10.1126/sciadv.abe4166) read which atom of the reactants becomes which
of the product from layer 10, head 5 alone. Their package carries model, tokenizer and reactions
with numbered atoms; here the reactions are a treebank, and the map of atoms is a relation.
"""

import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, files
from itertools import islice, permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Regex, Tokenizer, pre_tokenizers, processors
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from block_parts import every
from headbook import collect
from headbook.pages.parts.blocks import Table
from headbook.pages.syntax import syntax_page
from headbook.report.facts.language.relations import follows_grammar
from headbook.report.relation_counts import VIEW
from headbook.report.relation_tests import tests_of_stack as of_relations
from headbook.report.results import StackResults

PACKAGE = "rxnmapper"
ORDERS = 6  # of its reactants, in which a reaction is written
UNKNOWN = "[UNK]"
MAP = "map"  # of its own
ATOM = re.compile(r"\[(?P<atom>[^:\]]+):(?P<number>\d+)\]")
PLAIN = re.compile(r"(?P<symbol>Br|Cl|[BCNOSPFIbcnosp])H?\d?")  # needs no brackets


def packed() -> list[Path]:
    """Files of the package; none where it is not installed."""
    try:
        return [Path(str(file.locate())) for file in files(PACKAGE) or []]
    except PackageNotFoundError:
        return []


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not packed(), reason=f"{PACKAGE}, which carries weights, not installed"),
]


def named(name: str) -> Path:
    return next(file for file in packed() if file.name == name)


def pattern() -> str:
    """How the package cuts a reaction into tokens."""
    found = re.search(r'SMI_REGEX_PATTERN = r"(.*)"', named("smiles_utils.py").read_text())
    assert found
    return found[1]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package's model and tokenizer in a folder, as transformers expects them."""
    folder = tmp_path_factory.mktemp("reactions")
    (folder / "config.json").write_bytes(named("config.json").read_bytes())
    weights = torch.load(named("pytorch_model.bin"), map_location="cpu", weights_only=True)
    save_file({k: v.clone() for k, v in weights.items()}, folder / "model.safetensors")
    entries = named("vocab.txt").read_text().split("\n")
    vocabulary = {token: number for number, token in enumerate(entries) if token}
    fast = Tokenizer(WordLevel(vocabulary, unk_token=UNKNOWN))
    fast.pre_tokenizer = pre_tokenizers.Split(Regex(pattern()), "isolated")
    ends = [(name, vocabulary[name]) for name in ("[CLS]", "[SEP]")]
    fast.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", None, ends)
    roles = {f"{role}_token": f"[{role.upper()}]" for role in ("unk", "cls", "sep", "pad", "mask")}
    words: Any = PreTrainedTokenizerFast(tokenizer_object=fast, **roles)
    words.save_pretrained(folder)
    return folder


def mapped() -> list[str]:
    """Reactions with numbers of atoms that the package's own tests publish, each once."""
    text = named("test_mapper.py").read_text() + named("test_batched_mapper.py").read_text()
    found = re.findall(r'"([^" ]*:\d+\][^" ]*>>[^" ]*)', text)
    return sorted({reaction for reaction in found if "->" not in reaction})


def in_orders(reaction: str) -> Iterator[str]:
    """The reaction with its reactants in several orders."""
    before, _, after = reaction.partition(">>")
    for order in islice(permutations(before.split(".")), ORDERS):
        yield f"{'.'.join(order)}>>{after}"


def unnumbered(atom: str) -> str:
    """An atom as it is written without its number."""
    plain = PLAIN.fullmatch(atom)
    return plain["symbol"] if plain else f"[{atom}]"


def tree(reaction: str) -> list[tuple[str, int]]:
    """Tokens of a reaction; each atom of the product has as head what it was, others none."""
    tokens, numbers = [], []
    for token in re.findall(pattern(), reaction):
        atom = ATOM.fullmatch(token)
        tokens.append(unnumbered(atom["atom"]) if atom else token)
        numbers.append(int(atom["number"]) if atom else 0)
    arrow = tokens.index(">>")
    source = {number: place for place, number in enumerate(numbers[:arrow], 1) if number}
    heads = [0] * arrow + [source.get(number, 0) for number in numbers[arrow:]]
    return list(zip(tokens, heads, strict=True))


@pytest.fixture(scope="module")
def treebank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All reactions, in several orders, as CoNLL-U."""
    trees = [tree(order) for reaction in mapped() for order in in_orders(reaction)]
    blocks = []
    for n, words in enumerate(trees):
        lines = [f"# sent_id = {n}", f"# text = {''.join(token for token, _ in words)}"]
        for i, (token, head) in enumerate(words, 1):
            tag, relation = "SYM" if token[0].isalpha() else "X", MAP if head else "root"
            lines.append(f"{i}\t{token}\t_\t{tag}\t_\t_\t{head}\t{relation}\t_\tSpaceAfter=No")
        blocks.append("\n".join(lines) + "\n\n")
    file = tmp_path_factory.mktemp("treebank") / "reactions.conllu"
    file.write_text("".join(blocks))
    return file


@pytest.mark.soak
def test_the_syntax_page_finds_the_head_that_maps_atoms(model: Path, treebank: Path) -> None:
    """All layers share their weights: head 5 maps atoms in layer 10, and in those around it."""
    study = collect(
        [treebank],
        model=str(model),
        metrics="relation_accuracy",
        annotator="none",
        language="none",
        importance="off",
        sentence_pages="0",
        exemplars=1,
    )
    assert not study.manifest.failed
    assert study.manifest.model.missing == ()
    (stack,) = study.manifest.stacks
    results = StackResults(study, stack)
    tests = of_relations(results)
    assert tests is not None
    assert tests.labels == ("map:to_head", "map:to_dependent")
    layers = range(5, 12)
    for n, label in enumerate(tests.labels):
        assert tests.above_rule[n]
        assert tests.p[n] < 0.01  # family-wise, over all heads and both directions
        assert tests.layer_head[layers, n].tolist() == [5] * len(layers)
        assert tests.layer_supported[layers, n].all()
        assert tests.scores.at_rule.value[n] < 0.05
        accuracy = results.heads("relation_accuracy", VIEW, label).value
        others = np.delete(accuracy, 5, 1)
        assert accuracy[10, 5] > 0.7
        assert others.max() < 0.1
    page = syntax_page({"self": results})
    relations = [row[0] for table in every(Table, page) for row in table.rows]
    assert [name for name in relations if isinstance(name, str)] == [MAP, MAP]
    fact = follows_grammar(results)
    assert fact.holds
    # Which of the seven layers stands first for each direction is a matter of digits.
    assert {head.head for head in fact.heads} == {5}


def test_atoms_of_the_products_were_atoms_of_the_same_kind(treebank: Path) -> None:
    """The reactions are read as they are meant."""
    assert len(mapped()) >= 12
    for reaction in mapped():
        words = tree(reaction)
        pairs = [(token, words[head - 1][0]) for token, head in words if head]
        letters = [[re.sub(r"[^A-Za-z]", "", token)[:1].upper() for token in p] for p in pairs]
        assert all(after == before for after, before in letters)
    assert treebank.read_text().count(f"\t{MAP}\t") > 500
