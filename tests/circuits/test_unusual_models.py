"""Circuits of models whose heads write in other ways than most: right, or missing with a reason."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.models.llama.modeling_llama import LlamaRMSNorm

import tiny
from headbook.circuits.sample_outputs import NO_SUM, UNKNOWN_STEP
from headbook.circuits.token_directions import TOLERANCE
from headbook.circuits.unembedding import SOFT_CAP
from headbook.run.circuits import SELF_CHECK, WHAT
from headbook.run.collect import collect
from headbook.study.study import Study

TEXTS = (
    "the old dog sees the small bird in the garden .",
    "a red house , the cat and the old fisher .",
    "the fisher sings and sleeps near water !",
    "the cat and the bird sleep in the red house",
)
SIZES: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 128,
}  # fmt: skip
MAMBA = {"mamba_d_state": 8, "n_mamba_heads": 4, "mamba_expand": 2}
KINDS = {
    "vaultgemma": SIZES,
    "zamba": {
        **SIZES, **MAMBA, "num_key_value_heads": 4, "num_hidden_layers": 3,
        "layers_block_type": ["linear_attention", "hybrid", "hybrid"],
    },
}  # fmt: skip
Studied = Callable[..., Study]


@pytest.fixture
def studied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Studied:
    for name, options in KINDS.items():
        monkeypatch.setitem(tiny.OTHERS, name, tiny.Tiny(name, tiny.GEMMA, "<bos> $A", options))

    def of(name: str, dtype: str = "float32") -> Study:
        pairs, file = name in tiny.PAIRS, tmp_path / "texts.csv"
        rows = [f'"{text}","{text}"' if pairs else f'"{text}"' for text in TEXTS]
        header = "source,target" if pairs else "text"
        file.write_text("\n".join([header, *rows]), encoding="utf-8")
        folder = tiny.write(name, tmp_path / name, head=True)
        return collect(file, model=str(folder), annotator="none", metrics="sink_share", dtype=dtype)

    return of


def reasons(study: Study) -> dict[str, str]:
    """Return why circuits are missing, by stack; no self-check failed."""
    assert [check.name for check in study.manifest.checks if not check.passed] == []
    return {gap.stack: gap.why for gap in study.manifest.gaps if gap.what == WHAT}


def sums(study: Study) -> list[float]:
    return [check.error for check in study.manifest.checks if check.name == SELF_CHECK]


@pytest.mark.slow
def test_circuits_of_attention_without_known_layers_are_missing(studied: Studied) -> None:
    study = studied("fsmt")
    assert {"", "encoder"} == reasons(study).keys()
    assert study.circuits.promoted.empty


@pytest.mark.slow
def test_linear_maps_that_return_tuples_are_patched(studied: Studied) -> None:
    study = studied("ibert")
    assert reasons(study) == {}
    assert study.circuits.composition["intervention"].notna().any()


@pytest.mark.slow
def test_a_weak_cap_on_logits_is_called_approximate(studied: Studied) -> None:
    study = studied("vaultgemma")  # its cap bends the logits of a tiny model by less than 1 %
    assert reasons(study) == {}
    assert SOFT_CAP in study.circuits.remarks
    assert sums(study) == []


@pytest.mark.slow
def test_circuits_are_missing_if_a_layer_transforms_what_heads_write(studied: Studied) -> None:
    study = studied("zamba")
    assert UNKNOWN_STEP.format(1) in reasons(study)[""]
    assert study.circuits.promoted.empty
    assert study.circuits.composition.empty


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_contributions_that_add_up_but_for_rounding_are_printed(
    dtype: str, studied: Studied
) -> None:
    study = studied("llama", dtype)
    assert reasons(study) == {}
    assert len(sums(study)) == 1


@pytest.mark.slow
def test_circuits_whose_sum_is_not_the_logits_are_missing(
    studied: Studied, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = LlamaRMSNorm.forward

    def bent(norm: Any, states: torch.Tensor) -> torch.Tensor:
        normed: torch.Tensor = plain(norm, states)
        return normed + 0.02 * normed.sin()

    monkeypatch.setattr(LlamaRMSNorm, "forward", bent)
    study = studied("llama")
    reason = reasons(study)[""]
    assert NO_SUM in reason
    assert reason.endswith(f"more than {TOLERANCE:g}")
    assert sums(study) == []
    assert study.circuits.promoted.empty
    assert study.circuits.numbers.empty
