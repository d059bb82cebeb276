"""What the tables on importance, tests and words hold, for the page of files."""

from collections.abc import Mapping

STACK = "self; or encoder, decoder, cross"
REPLACED = (
    "what stands in place of the heads' outputs: mean (over query tokens of the same class in the "
    "other half of the sentences), zero, uniform (mean of all visible values) or without_sink"
)
TARGET = (
    "what of the answer changes: loss or masked_loss (nats per scored token), kl (divergence from "
    "the whole model, nats), logit (of the true token above the mean of all; less is worse), state "
    "or embedding (1 minus the cosine)"
)

JUDGED = {
    "margin": "mean change from which on a sentence counts as changed: 1 % of the mean distance "
    "between two sentences (embedding) or tokens of different sentences (state), 0.5 % of the "
    "whole model's loss (losses, kl), or --margin; at least 10 times the change by rounding all "
    "weights to bfloat16. Empty for logits",
    "share_changed": "share of sentences whose own mean change exceeds the margin",
    "share_low": "exact lower bound of this share (Clopper and Pearson), at 95 % over all heads "
    "(or groups) with this replacement together",
    "share_high": "exact upper bound",
    "verdict": "changes: the lower bound is above 20 %; no_change: the upper bound is below 20 %; "
    "harmful: changes, and the loss is surely lower without, tested over all at once; else "
    "undecided. Empty without a margin, and for what was not replaced",
}

IMPORTANCE: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "importance": (
        "What the model loses without each head, on a sample: exact where the head was taken away, "
        "else estimated from slopes.",
        {
            "stack": STACK,
            "layer": "counted from 0",
            "head": "counted from 0",
            "metric": "ablation_effect, attribution_estimate (the same from slopes), "
            "gradient_importance (output times slope of the loss), direct_effect (by the residual "
            "path alone) or self_repair (the part of the direct effect that the rest makes up for)",
            "replacement": f"{REPLACED}; empty for gradients",
            "target": TARGET,
            "label": "of gradients: per_token, signed, or layer_normalised; empty for the sum of "
            "absolute values by sentence. Of self_repair: top_2_percent, on the tokens for which "
            "the head says most (threshold from the other half); empty for all tokens",
            "value": "change of the target per scored token",
            "low": "lower end of the 95 % confidence interval, clustered by sentence (bootstrap-t "
            "of up to 500 sentences); empty for estimates",
            "high": "upper end",
            "sentences": "sentences that contribute",
            "events": "scored tokens",
            "kind": "exact or estimated",
            **JUDGED,
        },
    ),
    "head_groups": (
        "What the model loses without several heads at once.",
        {
            "stack": STACK,
            "group": "a type of heads, a layer, heads that share keys; or a pair, for interaction",
            "heads": "how many",
            "metric": "group_effect; or interaction: of two heads, the loss beyond that of each",
            "replacement": REPLACED,
            "target": TARGET,
            "value": "change of the target per scored token; pairs on the second half of the "
            "sentences, for they were chosen on the first",
            "low": "lower end of the 95 % confidence interval, clustered by sentence (bootstrap-t "
            "of up to 500 sentences, of pairs linearised)",
            "high": "upper end",
            "sentences": "sentences that contribute",
            "singles": "sum over its heads of what each alone loses",
            "random_low": "least of the random sets with as many heads in each layer",
            "random_high": "largest of them",
            "random_sets": "how many there are: 100 with --importance full, 20 with fast, and for "
            "sink heads alone",
            "rank": "place of the group among itself and its random sets, 1 for the largest change",
            **JUDGED,
        },
    ),
    "pruning": (
        "What the model loses as ever more heads are taken away, in several orders; the order is "
        "from one half of the sentences, the loss from the other.",
        {
            "stack": f"{STACK}; all where heads of all are taken together",
            "order": "ablation_effect (least first), reversed, gradient_importance or "
            "attribution_estimate, type (type by type), random-00 to random-19",
            "replacement": REPLACED,
            "target": TARGET,
            "share": "of all heads, 0 to 1",
            "value": "change of the target per scored token",
            "low": "lower end of the 95 % confidence interval, clustered by sentence",
            "high": "upper end",
        },
    ),
    "effect_tokens": (
        "The ten tokens at which each head that was taken away is missed most, and the one in the "
        "middle of all, strictly by rank.",
        {
            "stack": STACK,
            "layer": "counted from 0",
            "head": "counted from 0",
            "replacement": "what stands in place of the head's outputs",
            "target": TARGET,
            "rank": "from 1: largest change first",
            "tokens": "how many were ranked",
            "sentence": "counted from 1",
            "position": "of the token that the target is about, from 0",
            "token": "as in the text",
            "change": "of the target at this token",
            "before": "probability of the true token in the whole model; empty for states",
            "after": "the same without the head; for states the cosine with the state in the whole "
            "model",
        },
    ),
}

BEHIND = {
    "n_sentences": "sentences that contribute",
    "n_observations": "observations behind the value, for example words or query tokens",
}
ENDS = {
    "low": "lower end of the 95 % confidence interval, clustered by sentence; empty without one"
}
ENDS |= {"high": "upper end"}

TESTS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "tests": (
        "What pages claim, with baseline, difference and p: relations, effects of heads, the "
        "evidence on each head's role, and heads and layers that were chosen on one half of the "
        "sentences and reported on the other.",
        {
            "claim": "what is claimed; of the highest head of many, chosen on the choice half",
            "stack": f"{STACK}; all where heads of all are taken together",
            "layer": "counted from 0; empty for several layers",
            "head": "counted from 0; empty for several heads",
            "metric": "as in the addresses of the metrics' pages, or in the tables on importance",
            "view": "keys: raw (all), nosink (sink masked) or renorm (sink masked and "
            "renormalised); of effects of heads what stands in place of their outputs",
            "label": "what the value is about where a metric has several; of types the type; of "
            "effects of heads the target",
            "split": "choice: the half of the sentences on which heads, layers and baselines are "
            "chosen; held_out: the other half; all: all sentences",
            "value": "in the metric's unit; shares from 0 to 1",
            **ENDS,
            "baseline": "the rule's name, for example uniform attention or fixed offset +1",
            "baseline_value": "what the baseline reaches on the same sentences",
            "difference": "value minus baseline",
            "difference_low": "lower end of its 95 % confidence interval, paired by sentence; "
            "empty where it was not tested",
            "difference_high": "upper end",
            "p": "family-wise over all heads, relations and directions, or over all heads; empty "
            "where it was not tested",
            **BEHIND,
        },
    ),
}
WORDS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "words": (
        "Token metrics by class of words, averaged over the tokens of a layer; classes without a "
        "token are left out.",
        {
            "class": "all, content, function, initial or continuation subword tokens, special "
            "tokens, or a part of speech (UPOS)",
            "stack": STACK,
            "layer": "counted from 0",
            "state": "mid: after attention; out: after the layer",
            "metric": "as in the addresses of the metrics' pages",
            "space": "positional (token + position embedding), raw (token embedding), or empty",
            "value": "mean over tokens; of ranks the mean of log10(1 + rank)",
            **ENDS,
            **BEHIND,
        },
    ),
}
DESCRIBED = {**IMPORTANCE, **TESTS, **WORDS}
