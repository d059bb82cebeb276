"""Charts of tables, as SVG on pages, as live charts, and as SVG and PDF for papers."""

from headbook.charts.attention import (
    AttentionLine,
    OffsetBar,
    attention_lines,
    attention_map,
    offset_profile,
)
from headbook.charts.axes import without_schema_checks
from headbook.charts.drawing import Drawing
from headbook.charts.figure import Drawable, Figure, vega_bundle
from headbook.charts.heads import heat_map
from headbook.charts.language import (
    Arc,
    arc_diagram,
    tag_heads,
    tag_layers,
)
from headbook.charts.layers import layer_curve
from headbook.charts.plots import Plot
from headbook.charts.tokens import occurrence_paths

__all__ = [
    "Arc",
    "AttentionLine",
    "Drawable",
    "Drawing",
    "Figure",
    "OffsetBar",
    "Plot",
    "arc_diagram",
    "attention_lines",
    "attention_map",
    "heat_map",
    "layer_curve",
    "occurrence_paths",
    "offset_profile",
    "tag_heads",
    "tag_layers",
    "vega_bundle",
    "without_schema_checks",
]
