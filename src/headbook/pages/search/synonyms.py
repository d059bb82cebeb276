"""Other names of what pages, metrics and questions are about, for the search alone.

Readers type the words of papers and of other tools; pages do not repeat them all.
"""

from types import MappingProxyType

POSITION = "positional head fixed offset diagonal band"
SINK = "attention sink no-op null attention parking bos cls sep massive activations vertical"
USELESS = "useless dead idle inactive unimportant redundant no-op prunable pruning importance"
FILES = "download pdf svg csv parquet latex bibtex export heat map figure"
COREFERENCE = "coreference coref anaphora pronoun antecedent"
INDUCTION = "induction head in-context learning copying prefix matching repeated sequence"
ENTROPY = "normalised normalized entropy sharp sharpness broad diffuse uniform confidence"

# By address, or for a question by the number that answers it or by what it asks.
KEYWORDS = MappingProxyType({
    "Why do most heads of a layer attend to the same token?": f"{SINK} {USELESS} stripes columns",
    "Why not to the token itself?": f"{SINK} diagonal",
    "Are sink heads dead?": f"{SINK} {USELESS}",
    "Do positional heads contribute?": f"{POSITION} {USELESS}",
    "attention_to/previous": f"previous-token head previous token {POSITION}",
    "attention_to/next": f"next-token head next token {POSITION}",
    "attention_to/first": SINK,
    "attention_to/separator": SINK,
    "attention_to/same_token": f"duplicate-token head duplicate same token {COREFERENCE}",
    "attention_to/rest_of_word": "subword word piece wordpiece bpe tokenization",
    "distance_ratio/": "long range distant local attention distance",
    "sink_share/": SINK,
    "relative_entropy/": ENTROPY,
    "induction_score/": INDUCTION,
    "index.html": "atlas tiles map of all heads start home findings",
    "index.html#limits": "distrust trust limitations caveats explanation causal conclude",
    "about.html": "cite citation bibtex licence license",
    "data.html": FILES,
    "heads.html": "list of heads table sort filter compare scatter",
    "patterns.html": f"{USELESS} {SINK} {POSITION} block heterogeneous types of heads",
    "importance.html": f"{USELESS} ablation ablate causal knockout removable prune michel voita",
    "syntax.html": "dependency parse tree grammar relations uas treebank dobj nsubj",
    "speech.html": "punctuation content function words pos tags upos part of speech nouns verbs",
    "similar.html": f"{USELESS} clusters near-duplicate heads jensen-shannon divergence mds",
    "alignment.html": "encoder decoder translation word alignment cross attention aer",
    "flow.html": f"rollout norms value-weighted contribution context mixing {USELESS}",
    "geometry.html": "isotropy anisotropy intrinsic dimension cka rogue outlier dimensions",
    "context.html": "sentence boundary segmentation anchors repetition passages",
    "groups.html": "metadata compare corpora minimal pairs subsets genres",
    "tokens.html": "vocabulary types words trajectories function words content words",
    "sentences/index.html": "texts examples corpus compare two heads share link permalink",
    "metrics/index.html": f"definitions formulas glossary {FILES}",
    "methods.html#views": f"raw nosink renorm masked renormalised keys {SINK}",
    "methods.html#types": "roles classes taxonomy previous-token next-token local-window",
    "methods.html#rules": "distrust limits confidence intervals significance statistics p-value",
    "methods.html#checks": "tests correctness verification eager",
    "metrics/attention_to.html": f"previous-token next-token self same token {COREFERENCE} {SINK}",
    "metrics/attention_entropy.html": ENTROPY,
    "metrics/relative_entropy.html": ENTROPY,
    "metrics/confidence.html": "mean maximum weight important heads pruning",
    "metrics/duplicate_score.html": f"duplicate-token head {INDUCTION} {COREFERENCE}",
    "metrics/head_distance.html": "jensen-shannon divergence redundant heads pruning",
    "metrics/induction_score.html": INDUCTION,
    "metrics/positional_argmax.html": f"previous-token next-token head {POSITION}",
    "metrics/offset_profile.html": f"previous-token next-token head {POSITION}",
    "metrics/previous_score.html": f"previous-token head {POSITION}",
    "metrics/output_norm_share.html": f"contribution value-weighted norm {USELESS}",
    "metrics/pattern.html": f"vertical diagonal stripes block types {SINK}",
    "metrics/relation_accuracy.html": "dependency dobj nsubj head dependent syntactic",
    "metrics/surface_rule.html": "baseline next noun nearest verb offset heuristic word order",
    "metrics/dependency_trees.html": "parse uas maximum spanning tree",
    "metrics/phrase_trees.html": "constituency parse constituents",
    "metrics/rollout_self.html": "attention rollout abnar",
    "metrics/sink_norm_share.html": SINK,
    "metrics/sink_rate.html": SINK,
    "metrics/sink_share.html": SINK,
    "metrics/variability.html": "position content",
})  # fmt: skip

# What one word of a query may mean as well: labels of other annotation schemes, spellings.
SAME = MappingProxyType({
    "acomp": ("xcomp",),
    "agent": ("obl",),
    "attr": ("cop",),
    "auxpass": ("aux:pass",),
    "coref": ("coreference",),
    "csubjpass": ("csubj",),
    "dative": ("iobj",),
    "dobj": ("obj",),
    "iobject": ("iobj",),
    "neg": ("advmod",),
    "nn": ("compound",),
    "nsubjpass": ("nsubj:pass",),
    "num": ("nummod",),
    "pcomp": ("obl",),
    "pobj": ("obl", "nmod"),
    "poss": ("nmod:poss",),
    "prep": ("case",),
    "prt": ("compound:prt",),
    "rcmod": ("acl:relcl",),
    "relcl": ("acl:relcl",),
    "normalized": ("normalised", "relative"),
    "normalised": ("relative",),
    "prune": ("pruning",),
    "pruned": ("pruning",),
    "redundancy": ("redundant",),
    "tokenisation": ("tokenization",),
})  # fmt: skip
