"""Families with the options of published checkpoints lack nothing that plainer ones have."""

from collections.abc import Callable
from functools import cache

import pytest

import tiny
import treebank
from headbook.run.collect import collect
from headbook.study.study import Study

# What class defaults leave out, and a family of the same kind with nothing unusual.
PUBLISHED = {
    "deberta": "bert",
    "deberta_v2": "bert",
    "deberta_v3": "bert",
    "gemma4": "gemma3",
    "gemma4_large": "gemma3",
    "albert_inner": "albert",
}


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Study]:
    """A study of a family with its language-model head, on sentences with their trees."""

    @cache
    def of(name: str) -> Study:
        folder = tmp_path_factory.mktemp(name)
        model = tiny.write(name, folder / "model", head=True)
        file = treebank.write_trees(folder / "trees.conllu")
        return collect(file, model=str(model), annotator="none", device="cpu")

    return of


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_nothing_is_missing_that_a_plainer_family_has(
    name: str, study: Callable[[str], Study]
) -> None:
    published, plain = study(name), study(PUBLISHED[name])
    assert [check for check in published.manifest.checks if not check.passed] == []
    checks = [{check.name for check in one.manifest.checks} for one in (published, plain)]
    assert checks[1] <= checks[0]
    gaps = [{gap.what for gap in one.manifest.gaps} for one in (published, plain)]
    assert gaps[0] <= gaps[1]
    assert published.circuits is not None
    assert plain.circuits is not None
    assert published.circuits.missing == plain.circuits.missing == {}
    (stack,) = published.manifest.stacks
    assert stack.attention_layers == tuple(range(stack.n_layers))
    for table in ("heads", "tokens", "layers"):
        of_both = [set(getattr(one, table)["metric"]) for one in (published, plain)]
        assert of_both[1] <= of_both[0]
    for one in (published, plain):
        for metric, of_metric in one.circuits.numbers.groupby("metric"):
            (of_stack,) = one.manifest.stacks
            heads = of_metric[["layer", "head"]].drop_duplicates()
            assert len(heads) == of_stack.n_layers * of_stack.n_heads, metric
        assert one.importance is not None
        assert len(one.importance[["layer", "head"]].dropna().drop_duplicates()) == (
            one.manifest.stacks[0].n_layers * one.manifest.stacks[0].n_heads
        )
    interventions = [one.circuits.composition["intervention"] for one in (published, plain)]
    assert interventions[0].notna().any() == interventions[1].notna().any()
