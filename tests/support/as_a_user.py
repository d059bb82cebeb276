"""What a user does with an installed Headbook: objects, outputs, a metric of a package, own words.

Usage: python as_a_user.py MODEL, in an empty folder, with a model's folder. Ends with 0 if all is
as `docs/python.md`, `docs/extending.md` and `docs/publishing.md` say. It imports nothing of the
tests.
"""

import sys
import webbrowser
from pathlib import Path
from typing import Any

import pandas as pd
from transformers import AutoModelForCausalLM, AutoTokenizer

import headbook

TEXTS = [
    "the cat sees the bird near the house",
    "the dog sleeps in the garden near the water",
    "the small bird sings in the old garden",
]
NOTES = """
[heads."L1-H2"]
name = "garden head"
text = "It *often* looks at gardens."

[pages]
"heads.html" = "Look at the **garden head** first."
"""
SECTION = "# How we read this\n\nOur own words about the model.\n"


def objects_in(folder: str) -> "headbook.Study":
    """Collect, ablate, build and compare with objects, which stay as they were."""
    model = AutoModelForCausalLM.from_pretrained(folder).train()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    options: Any = {"annotator": "none", "language": "none", "sentence_pages": 2}
    study = headbook.collect(TEXTS, model=model, tokenizer=tokenizer, **options)
    assert model.training
    table = pd.DataFrame({"text": TEXTS, "genre": ["a", "b", "a"]})
    again = headbook.collect(table, model=model, tokenizer=tokenizer, **options)
    assert again.manifest.model.revision == study.manifest.model.revision
    lost = headbook.ablate(model, TEXTS, ["L0-H1"], tokenizer=tokenizer)
    assert len(lost) > 0
    site = headbook.build(TEXTS, "site", model=model, tokenizer=tokenizer, **options)
    opened: list[str] = []
    webbrowser.open = opened.append  # type: ignore[assignment]
    site.show()
    assert opened
    assert (site.path / "index.html").is_file()
    other = AutoModelForCausalLM.from_pretrained(folder)
    compared = headbook.compare(
        TEXTS, models=(model, other), tokenizers=(tokenizer, tokenizer), out="compared",
        rounding_floor=False, **options,
    )  # fmt: skip
    assert (compared.path / "index.html").is_file()
    return study


def notebook_out(study: "headbook.Study") -> None:
    """Show a study, a head, a sentence and a chart."""
    for output in (study, study.head(1, 2), study.sentence(0)):
        html = output._repr_html_()
        assert html.count('class="headbook') == 1
        assert "<script" not in html
    assert study.plot("attention_distance").to_dict()


def words(study: "headbook.Study") -> None:
    """Render with a title, notes on a head and a page, and a page of one's own."""
    Path("notes.toml").write_text(NOTES, encoding="utf-8")
    Path("reading.md").write_text(SECTION, encoding="utf-8")
    site = headbook.render(
        study, "own", title="My heads", notes="notes.toml", section=["reading.md"]
    )
    head = (site.path / "heads" / "L01-H02.html").read_text(encoding="utf-8")
    assert "garden head" in head
    assert "<em>often</em>" in head
    assert "garden head" in (site.path / "heads.html").read_text(encoding="utf-8")
    assert "My heads" in (site.path / "index.html").read_text(encoding="utf-8")
    own = (site.path / "section-how-we-read-this.html").read_text(encoding="utf-8")
    assert "Our own words" in own


def metric_of_a_package(study: "headbook.Study") -> None:
    """Find the numbers and the page of a metric that another package brought."""
    rows = study.heads[study.heads["metric"] == "far_attention"]
    assert len(rows) > 0
    assert rows["value"].between(0, 1).all()
    site = headbook.render(study, "with-metric")
    page = site.path / "metrics" / "far_attention.html"
    assert "Far attention" in page.read_text(encoding="utf-8")
    assert list((site.path / "figures").glob("far_attention*"))
    assert "Far attention" in (site.path / "metrics" / "index.html").read_text(encoding="utf-8")


if __name__ == "__main__":
    collected = objects_in(sys.argv[1])
    notebook_out(collected)
    words(collected)
    metric_of_a_package(collected)
