"""Sentence about the kind of a model and its output."""

from enum import StrEnum

from headbook.schema import TEXT_CLASSIFIER, TOKEN_CLASSIFIER, AblationTarget, ModelKind
from headbook.study.study import Study

MASKED, CAUSAL = ("ForMaskedLM", "ForPreTraining"), ("ForCausalLM", "LMHeadModel")
POOLED = {
    "mean": "the mean of its last states",
    "cls": "the last state of its first token",
    "max": "the largest numbers of its last states",
    "last token": "the last state of its last token",
    "weighted mean": "a weighted mean of its last states",
}


class Purpose(StrEnum):
    """Kind of a model by what it gives out; the value is its name on pages."""

    SENTENCE_ENCODER = "sentence encoder"
    LABELS_TEXTS = "text classifier"
    LABELS_TOKENS = "token classifier"
    MASKED = "masked language model"
    CAUSAL = "causal language model"
    ENCODER_DECODER = "encoder-decoder"
    ENCODER = "encoder"
    DECODER = "decoder"


def purpose_of(study: Study) -> Purpose:
    """Return the kind of a study's model by its architecture and by the checkpoint's pooling.

    Studies that do not name the pooling have it if effects on sentence vectors were measured.
    """
    model, ablation = study.manifest.model, study.corpus_sums.ablation
    has_vectors = ablation is not None and AblationTarget.EMBEDDING in ablation.targets
    if model.kind is ModelKind.ENCODER_DECODER:
        return Purpose.ENCODER_DECODER
    if model.architecture.endswith(TEXT_CLASSIFIER):
        return Purpose.LABELS_TEXTS
    if model.architecture.endswith(TOKEN_CLASSIFIER):
        return Purpose.LABELS_TOKENS
    if model.pooling or has_vectors:
        return Purpose.SENTENCE_ENCODER
    if model.kind is ModelKind.ENCODER:
        return Purpose.MASKED if model.architecture.endswith(MASKED) else Purpose.ENCODER
    return Purpose.CAUSAL if model.architecture.endswith(CAUSAL) else Purpose.DECODER


def what_it_gives(study: Study) -> str:
    """Return what the model does, after the name of its kind, as the end of a sentence."""
    model = study.manifest.model
    vector = f"one vector of {model.width:,} numbers" if model.width else "one vector"
    pooled = f", {POOLED[model.pooling]}" if model.pooling in POOLED else ""
    return {
        Purpose.SENTENCE_ENCODER: f"it turns a sentence into {vector}{pooled}.",
        Purpose.LABELS_TEXTS: "it gives a probability to each label of a text.",
        Purpose.LABELS_TOKENS: "it gives a probability to each label of each token.",
        Purpose.MASKED: "it predicts hidden tokens from the text on both sides.",
        Purpose.CAUSAL: "it gives a probability to every possible next token.",
        Purpose.ENCODER_DECODER: "it reads one text and writes another, token by token.",
        Purpose.ENCODER: f"it turns each token into {vector}, from the whole text.",
        Purpose.DECODER: f"it turns each token into {vector}, from the text so far.",
    }[purpose_of(study)]
