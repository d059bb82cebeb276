"""Fifteen tasks of a researcher in Python, with assertions on what each gives.

Usage: python fifteen_tasks.py MODEL, in an empty folder, with the folder of a tiny causal
model; the package of `docs/extending.md` is installed for the metric of one's own. It imports
nothing of the tests, and its results have the types that an editor shows (`mypy --strict`).
"""

import sys
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict, assert_type

import altair as alt
import numpy as np
import pandas as pd
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers import GPT2ForSequenceClassification as Classifier

import headbook
from headbook.options import Options

TEXTS = [
    "the cat sees the bird near the house",
    "the dog sleeps in the garden near the water",
    "the small bird sings in the old garden",
    "the old fisher runs near the red house",
]


class Quick(TypedDict):
    """Options that make a small study."""

    sentence_pages: int
    sample_sentences: int
    importance_sentences: int


QUICK: Quick = {"sentence_pages": 2, "sample_sentences": 10, "importance_sentences": 4}
NOTES = """
[heads."L1-H2"]
name = "garden head"
text = "It *often* looks at gardens."

[pages]
"heads.html" = "Look at the **garden head** first."
"""
SECTION = "# How we read this\n\nOur own words about the model.\n"
PAIRS = pd.DataFrame(
    {
        "text": ["the cat sees the bird", "the cat see the bird", "the dog runs", "the dog run"],
        "pair_id": ["1", "1", "2", "2"],
        "acceptable": ["yes", "no", "yes", "no"],
    }
)
Made = tuple[Any, Any]  # a model and its tokenizer


def card_and_figure(made: Made) -> headbook.Study:
    """1: from objects to the card of a head, its weights, and a figure."""
    model, tokenizer = made
    model.train()
    study = assert_type(headbook.collect(TEXTS, model, tokenizer, **QUICK), headbook.Study)
    assert model.training
    for output in (study, study.head(1, 2), study.head("L1-H2"), study.sentence(0)):
        html = output._repr_html_()
        assert html.count('class="headbook') == 1
        assert "<script" not in html
    weights, queries, keys = study.attention(0, layer=1, head=2)
    assert weights.shape == (len(queries), len(keys))
    assert np.allclose(weights.sum(-1), 1, atol=len(keys) / 255)
    assert np.array_equal(study.attention(0, 1).weights[2], weights)
    assert "attention_distance" in study.figures
    assert isinstance(study.plot("attention_distance"), alt.Chart)
    names = assert_type(headbook.figures(study, "one", ["attention_distance"]), list[str])
    assert all(Path("one", f"{name}.pdf").is_file() for name in names)
    grid = study.heads.query("metric == 'attention_distance' and view == 'raw'")
    assert grid.pivot(index="layer", columns="head", values="value").shape == (2, 4)
    return study


def labelled_classifier(made: Made, folder: str) -> None:
    """2: a classifier with labels in a data frame."""
    config = AutoConfig.from_pretrained(folder, num_labels=2, pad_token_id=0)
    torch.manual_seed(0)
    classifier = Classifier(config).eval()
    table = pd.DataFrame({"text": TEXTS * 3, "label": [0, 1, 1, 0] * 3})
    study = headbook.collect(table, classifier, made[1], name="labels", **QUICK)
    assert study.manifest.model.name == "labels"
    targets = set(study.importance["target"])
    assert {"label", "accuracy"} <= targets, targets
    assert set(study.groups["group"]) == {"0", "1"}


def adapter_compared(made: Made, folder: str) -> None:
    """3: a model beside itself with an adapter."""
    model, tokenizer = made
    adapted = get_peft_model(
        AutoModelForCausalLM.from_pretrained(folder),
        LoraConfig(r=2, target_modules=["c_attn"], init_lora_weights=False, fan_in_fan_out=True),
    )
    both = headbook.compare(
        TEXTS, (model, adapted), tokenizer, trained_from=True, rounding_floor=False, **QUICK
    )
    assert_type(both, headbook.Comparison)
    assert "with adapter default" in both.sides.names[1]
    drift = both.differences.query("metric == 'pattern_drift' and head.notna()")
    assert (drift["difference"] > 0).any()


def induction_for_latex(study: headbook.Study) -> None:
    """4: induction scores plotted, and saved with their LaTeX."""
    chart = study.plot("induction_score")
    chart.save("induction.svg")
    assert Path("induction.svg").stat().st_size > 1_000
    names = headbook.figures(study, "induction", "induction_score")
    tex = Path("induction", "figures.tex").read_text(encoding="utf-8")
    assert names
    assert all(name in tex for name in names)
    shares = pd.read_csv(Path("induction", f"{names[0]}.csv"))["value"]
    rows = study.heads.query("metric == 'induction_score'")["value"]
    assert set(shares.round(4)) <= set(rows.round(4))


def three_heads_ablated(made: Made) -> None:
    """5: three heads replaced, each alone and all together."""
    model, tokenizer = made
    heads: list[Any] = ["L0-H1", (1, 2), "L1-H3", ["L0-H1", (1, 2), "L1-H3"]]
    lost = headbook.ablate(TEXTS, model, tokenizer, heads=heads)
    assert_type(lost, pd.DataFrame)
    loss = lost[lost["target"] == "loss"].set_index("heads")
    assert len(loss) == 4
    assert (loss["value"].abs() > 0).all()
    together = loss.iloc[-1]
    assert np.isclose(together["interaction"], together["value"] - loss["value"][:3].sum())


def two_compared(made: Made, folder: str) -> None:
    """6: two models as objects, and the site of their comparison."""
    other: Any = AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        other.transformer.h[1].attn.c_attn.weight.mul_(1.5)
    both = headbook.compare(
        TEXTS, (made[0], other), made[1], out="compared", rounding_floor=False, **QUICK
    )
    assert both.site is not None
    assert both.site.index.is_file()
    assert "<script" not in both._repr_html_()
    distance = both.differences.query("metric == 'attention_distance'")
    assert (distance.query("layer == 0")["difference"] == 0).all()
    training = headbook.checkpoints(TEXTS, {0: made[0], 64: other}, made[1], **QUICK)
    assert_type(training, headbook.Checkpoints)
    assert set(training.curves["step"]) == {0, 64}


def metric_of_my_own(study: headbook.Study) -> None:
    """7: the numbers and the page of a metric that another package brought."""
    assert "far_attention" in set(headbook.list_metrics()["id"])
    rows = study.heads[study.heads["metric"] == "far_attention"]
    assert len(rows) > 0
    assert rows["value"].between(0, 1).all()
    site = headbook.render(study, "with-metric")
    page = site.path / "metrics" / "far_attention.html"
    assert "Far attention" in page.read_text(encoding="utf-8")
    assert list((site.path / "figures").glob("far_attention*"))


def halves_merged(made: Made, whole: headbook.Study) -> None:
    """8: two halves merged, whose tables are those of the whole."""
    model, tokenizer = made
    halves = [
        headbook.collect(texts, model, tokenizer, **QUICK) for texts in (TEXTS[:2], TEXTS[2:])
    ]
    halves[1].save("half")
    merged = assert_type(headbook.merge([halves[0], "half"]), headbook.Study)
    columns = ["layer", "head", "metric", "view", "label", "value"]
    ours, theirs = (
        study.heads.query("metric == 'attention_distance'")[columns].reset_index(drop=True)
        for study in (merged, whole)
    )
    pd.testing.assert_frame_equal(ours, theirs, rtol=1e-6)


def minimal_pairs(made: Made) -> None:
    """9: minimal pairs, and on which heads the preference rests."""
    study = headbook.collect(PAIRS, *made, acceptable="yes", **QUICK)
    assert set(study.minimal_pairs["metric"]) >= {"attention_distance"}
    assert "preference" in set(study.importance["target"])


def long_document(made: Made) -> None:
    """10: a document longer than the model reads is cut, and that is said."""
    text = " ".join(TEXTS * 30)
    study = headbook.collect([text, *TEXTS], *made, max_length=64, **QUICK)
    assert any("longer than 64 tokens" in line for line in repr(study).splitlines())
    assert len(str(study.sentence(0)).splitlines()) <= 10


def other_languages(made: Made) -> None:
    """11: German and Arabic, which are not parsed as English."""
    german = ["die katze sieht den kleinen vogel", "der hund schläft im garten am wasser"]
    arabic = ["القطة ترى الطائر الصغير", "الكلب ينام في الحديقة"]
    for language, texts in (("de", german), ("ar", arabic)):
        study = headbook.collect(texts, *made, language=language, **QUICK)
        assert study.manifest.counts["sentences"] == 2
        assert not set(study.words["class"]) & {"NOUN", "VERB"}


def published(study: headbook.Study) -> None:
    """12: a site with an address and words of one's own; archives, with names and without."""
    Path("notes.toml").write_text(NOTES, encoding="utf-8")
    Path("reading.md").write_text(SECTION, encoding="utf-8")
    site = headbook.render(
        study, "own", title="My heads", notes="notes.toml", section="reading.md",
        base_url="https://somebody.github.io/heads/",
    )  # fmt: skip
    assert_type(site, headbook.Site)
    opened: list[str] = []
    webbrowser.open = opened.append  # type: ignore[assignment]
    site.show()
    assert opened
    head = (site.path / "heads" / "L01-H02.html").read_text(encoding="utf-8")
    assert "<em>often</em>" in head
    assert "My heads" in site.index.read_text(encoding="utf-8")
    assert (site.path / "sitemap.xml").is_file()
    assert (site.path / "section-how-we-read-this.html").is_file()
    assert headbook.pack("own").path.name == "supplement.zip"
    named = study.manifest.inputs[0].name
    nameless = headbook.pack(study, "nameless.html", anonymous=True, single_file=True)
    assert "My heads" not in nameless.path.read_text(encoding="utf-8")
    assert named


def notebook_exported(study: headbook.Study) -> None:
    """13: outputs side by side in one document do not share their styles."""
    views: list[Any] = [study, study.head(0, 1), study.head(1, 2)]
    roots = {view._repr_html_().split('class="headbook ')[1].split('"')[0] for view in views}
    assert len(roots) == len(views)


class Stopping:
    """Progress of a run that somebody stops when a stage begins."""

    def __init__(self, last: str = "") -> None:
        self.last, self.messages = last, list[str]()

    def stage(self, name: str, amount: int) -> None:
        """Stop the run if the stage is the last one."""
        if name == self.last:
            raise KeyboardInterrupt

    def advance(self, amount: int, tokens: int) -> None:
        """Show nothing."""

    def message(self, text: str) -> None:
        """Keep a message."""
        self.messages.append(text)


def stopped_and_resumed(made: Made) -> None:
    """14: a run that was stopped goes on where it was, and says so."""
    texts = [f"{text} {number}" for number in range(75) for text in TEXTS]
    options: Options = {"sentence_pages": 1, "circuits": False, "metrics": "attention_distance"}
    first, again = Stopping("importance"), Stopping()
    try:
        headbook.collect(texts, *made, work="parts", progress=first, **options)
    except KeyboardInterrupt:
        pass
    else:
        raise AssertionError("the run was not stopped")
    study = headbook.collect(texts, *made, work="parts", progress=again, **options)
    assert any(line.startswith("resuming: ") for line in again.messages), again.messages
    whole = headbook.collect(texts, *made, progress=False, **options)
    pd.testing.assert_frame_equal(study.heads, whole.heads)


def refusal(call: Callable[[], object]) -> headbook.HeadbookError | None:
    """Return the error of a call, or None."""
    try:
        call()
    except headbook.HeadbookError as error:
        return error
    return None


def wrong_calls(made: Made, study: headbook.Study) -> None:
    """15: calls that do not fit are one line each."""
    model, tokenizer = made
    pairs: Any = [("L2-H8", "L0-H2")]
    anything: Any = study
    calls: list[Callable[[], object]] = [
        lambda: headbook.collect(TEXTS),
        lambda: headbook.collect(TEXTS, model),
        lambda: headbook.collect(model, TEXTS),
        lambda: headbook.collect(TEXTS, *made, metrcs="sink_share"),  # type: ignore[call-arg]
        lambda: headbook.collect(TEXTS, *made, progress="yes"),  # type: ignore[arg-type]
        lambda: headbook.ablate(TEXTS, *made, heads=pairs),
        lambda: headbook.ablate(TEXTS, *made, heads=[[]]),
        lambda: headbook.ablate(TEXTS, *made, heads=["L0-H1"], sentences=0),
        lambda: study.head(0.0, 1),  # type: ignore[arg-type]
        lambda: study.head(0, 99),
        lambda: study.head("nonsense"),
        lambda: study.sentence(10**6),
        lambda: study.attention(10**6, 0),
        lambda: study.attention(0, 99),
        lambda: study.plot(["x"]),  # type: ignore[arg-type]
        study.plot,
        lambda: anything + "x",
        lambda: sum([anything, anything]),
        lambda: headbook.merge([study]),
        lambda: headbook.compare(model, anything, TEXTS),
        lambda: headbook.figures(study, "none", "induction_scor"),
        lambda: headbook.build(TEXTS, *made, out="none", base_url="example.com"),
    ]
    for number, call in enumerate(calls):
        error = refusal(call)
        assert error is not None, f"call {number} was accepted"
        assert "\n" not in str(error), error
        assert error._render_traceback_() == [f"{type(error).__name__}: {error}"]
    assert headbook.collect(TEXTS, model, tokenizer, progress=True, **QUICK)


def main(folder: str) -> None:
    """Do all tasks in the current folder."""
    made = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    study = card_and_figure(made)
    labelled_classifier(made, folder)
    adapter_compared(made, folder)
    induction_for_latex(study)
    three_heads_ablated(made)
    two_compared(made, folder)
    metric_of_my_own(study)
    halves_merged(made, study)
    minimal_pairs(made)
    long_document(made)
    other_languages(made)
    published(study)
    notebook_exported(study)
    stopped_and_resumed(made)
    wrong_calls(made, study)


if __name__ == "__main__":
    main(sys.argv[1])
