"""What is compared, by name: metrics, and what a model loses without each head."""

from dataclasses import dataclass
from math import inf

from headbook.metrics import all_metrics
from headbook.metrics.base import Chart, HeadMetric, LayerwiseMetric, Section
from headbook.report.wording import is_share, label_name
from headbook.study.importancetables import EFFECT
from headbook.terms import Target

TARGETS = {
    Target.LOSS: "loss of the next token (nats)",
    Target.MASKED_LOSS: "loss of masked tokens (nats)",
    Target.KL: "divergence of predictions (nats)",
    Target.LOGIT: "logit of the true token",
    Target.STATE: "1 minus the cosine of last states",
    Target.EMBEDDING: "1 minus the cosine of text vectors",
}
REPLACED = {
    "mean": "replaced by its mean",
    "zero": "set to zero",
    "position_mean": "replaced by its mean at the position",
    "resample": "resampled",
    "uniform": "attending uniformly",
    "sink_only": "attending to the sink",
}
EFFECT_ABOUT = (
    "What a model loses without a head: the change of its loss, or of its last states, where the "
    "head's output is replaced. A difference says that one model depends on the head more."
)


@dataclass(frozen=True)
class ComparedMetric:
    """A number of heads, or of the tokens of layers, as pages of comparisons name it.

    Attributes:
        id: as in files.
        title, unit, about: in words; ``about`` is the first sentence of its definition.
        share: whether values are written in per cent.
        limits: of its values.
        headline: the label that pages show first.
        section: where it stands in lists.
        chart: which labels charts offer.
    """

    id: str
    title: str
    unit: str
    about: str
    share: bool
    limits: tuple[float, float]
    headline: str
    section: Section
    chart: Chart

    @property
    def path(self) -> str:
        """Address of its page."""
        return f"metrics/{self.id}.html"

    @property
    def unit_title(self) -> str:
        """Its name with its unit, for the legend of a chart."""
        return f"{self.title.lower()} ({self.unit})" if self.unit else self.title.lower()

    def label(self, label: str) -> str:
        """A label as words."""
        if self.id != EFFECT:
            return label_name(label)
        replacement, _, target = label.partition("/")
        return f"{TARGETS[Target(target)]}, head {REPLACED[replacement]}"


def compared_metric(name: str) -> ComparedMetric | None:
    """A number by its name in files; None where it has no page."""
    if name == EFFECT:
        return ComparedMetric(
            EFFECT, "Importance of heads", "", EFFECT_ABOUT, share=False, limits=(-inf, inf),
            headline="", section=Section.CONTRIBUTES, chart=Chart.HEATMAP,
        )  # fmt: skip
    known = all_metrics().get(name)
    if isinstance(known, LayerwiseMetric):
        return _of_tokens(known)
    if not isinstance(known, HeadMetric):
        return None
    return ComparedMetric(
        known.id, known.title, known.unit, known.summary, share=is_share(known),
        limits=known.limits, headline=known.headline, section=known.section, chart=known.chart,
    )  # fmt: skip


def _of_tokens(metric: LayerwiseMetric) -> ComparedMetric:
    """What is averaged over tokens, in its own unit and, if that is another one, unbounded."""
    other = metric.averaged.unit
    return ComparedMetric(
        metric.id, metric.title, other or metric.unit, metric.summary,
        share=is_share(metric) and not other, limits=(-inf, inf) if other else metric.limits,
        headline="", section=metric.section, chart=metric.chart,
    )  # fmt: skip
