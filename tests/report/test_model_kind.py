"""What a model is, by its architecture, its pooling, and what was measured."""

from dataclasses import replace

import pytest

from ablation_results import ablation_results, around
from chosen_results import Fake, fake_results
from headbook.report.answers.overview.model_kind import Purpose, purpose_of, what_it_gives
from headbook.schema import AblationTarget, HeadKey, ModelKind, SinkView
from headbook.study.study import Study
from sites import Site


def study_of(kind: ModelKind, architecture: str, pooling: str = "", width: int = 384) -> Study:
    study = fake_results({HeadKey("sink_share", SinkView.RAW, ""): Fake([[0.1]])}).study
    model = replace(
        study.manifest.model, kind=kind, architecture=architecture, pooling=pooling, width=width
    )
    return replace(study, manifest=replace(study.manifest, model=model))


@pytest.mark.parametrize(
    ("kind", "architecture", "pooling", "purpose", "gives"),
    [
        (ModelKind.ENCODER, "BertModel", "mean", Purpose.SENTENCE_ENCODER,
         "it turns a sentence into one vector of 384 numbers, the mean of its last states."),
        (ModelKind.ENCODER, "BertForMaskedLM", "", Purpose.MASKED,
         "it predicts hidden tokens from the text on both sides."),
        (ModelKind.ENCODER, "BertModel", "", Purpose.ENCODER,
         "it turns each token into one vector of 384 numbers, from the whole text."),
        (ModelKind.DECODER, "LlamaForCausalLM", "", Purpose.CAUSAL,
         "it gives a probability to every possible next token."),
        (ModelKind.DECODER, "GPT2LMHeadModel", "", Purpose.CAUSAL,
         "it gives a probability to every possible next token."),
        (ModelKind.DECODER, "GPT2Model", "", Purpose.DECODER,
         "it turns each token into one vector of 384 numbers, from the text so far."),
        (ModelKind.ENCODER_DECODER, "MarianMTModel", "", Purpose.ENCODER_DECODER,
         "it reads one text and writes another, token by token."),
    ],
)  # fmt: skip
def test_a_model_is_named_by_what_it_gives_out(
    kind: ModelKind, architecture: str, pooling: str, purpose: Purpose, gives: str
) -> None:
    study = study_of(kind, architecture, pooling)
    assert purpose_of(study) is purpose
    assert what_it_gives(study) == gives
    assert len(f"A {purpose}: {gives}".split()) <= 20


def test_older_studies_tell_neither_pooling_nor_width() -> None:
    study = study_of(ModelKind.ENCODER, "BertModel", width=0)
    ablation = ablation_results(around(0.1), AblationTarget.EMBEDDING)
    study = replace(study, corpus_sums=replace(study.corpus_sums, ablation=ablation))
    assert purpose_of(study) is Purpose.SENTENCE_ENCODER
    assert what_it_gives(study) == "it turns a sentence into one vector."


def test_studies_name_the_width_of_the_model(encoder_site: Site) -> None:
    assert encoder_site.study.manifest.model.width > 0
