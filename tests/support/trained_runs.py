"""A training small enough for tests, the studies of its checkpoints, and their site."""

from pathlib import Path

import pytest

from headbook.cli import main as cli
from sites import EPOCH, Once

STEPS, RATE = 640, 4e-3  # an induction head begins at about step 500
REVISIONS = ("step-0", "step-64", "step-362", "step-512", "step-640")
METRICS = (
    "induction_score,duplicate_score,attention_to,sink_share,type_shares,attention_parts,relative_entropy,"
    "attention_distance"
)
OPTIONS = (
    "--metrics", METRICS, "--annotator", "none", "--exemplars", "1", "--sentence-pages", "0",
    "--importance-sentences", "10", "--quiet",
)  # fmt: skip
SENTENCES = 40


def command(*arguments: object) -> int:
    """Run `headbook` in this process; returns its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOURCE_DATE_EPOCH", EPOCH)
        patch.setattr("sys.argv", ["headbook", *map(str, arguments)])
        try:
            cli.main()
        except SystemExit as end:
            return int(end.code or 0)
    return 0


def write_trained_run(place: Path) -> None:
    """Train, collect and draw below a folder: ``run``, ``studies``, ``site``, ``some.txt``."""
    import training

    training.train(place / "run", STEPS, texts=0, rate=RATE)
    texts = training.sentences()[:SENTENCES]
    (place / "some.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    code = command(
        "checkpoints", place / "some.txt", "--model", place / "run",
        "--revisions", ",".join(REVISIONS), "--keep-studies", place / "studies",
        "--out", place / "site", *OPTIONS,
    )  # fmt: skip
    assert code == 0


@pytest.fixture(scope="session")
def trained_run(once: Once) -> Path:
    """Return the folder of a trained run, made once for all workers."""
    return once("trained-run", write_trained_run)


def write_cross_encoder(place: Path) -> None:
    """Train the cross-encoder below a folder."""
    import cross_encoder

    cross_encoder.write(place / "model")


@pytest.fixture(scope="session")
def cross_encoder_folder(once: Once) -> Path:
    """Return the folder of a trained cross-encoder, made once for all workers."""
    return once("cross-encoder", write_cross_encoder) / "model"


def write_cross_encoder_study(place: Path, model: Path) -> None:
    """Collect pairs and draw their site below a folder: ``study``, ``site``."""
    import cross_encoder
    import headbook

    file = cross_encoder.write_pairs(place / "pairs.jsonl")
    study = headbook.collect(
        file, model=str(model), annotator="none", language="none", sentence_pages="4"
    )
    study.save(place / "study")
    headbook.render(study, place / "site")


@pytest.fixture(scope="session")
def cross_encoder_study(once: Once, cross_encoder_folder: Path) -> Path:
    """Return the folder of a study of the cross-encoder and its site, made once for all workers."""
    return once(
        "cross-encoder-study", lambda path: write_cross_encoder_study(path, cross_encoder_folder)
    )
