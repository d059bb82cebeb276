"""Tables as charts. `draw` makes them, `render` makes pictures of them."""

from headbook.charts.base.drawing import Drawing
from headbook.charts.base.paper import files
from headbook.charts.base.render import Figure, Picture, columnar
from headbook.charts.base.runtime import runtime
from headbook.charts.base.unchecked import unchecked
from headbook.charts.drawn.attention import AttentionLine, attention_lines, attention_map
from headbook.charts.drawn.profile import Bar, offset_profile
from headbook.charts.drawn.trees import Arc, arc_diagram, bracket_diagram
from headbook.charts.vega.draw import heat_map, layer_curve
from headbook.charts.vega.geometry import state_curves, state_matrix
from headbook.charts.vega.occurrences import occurrence_paths
from headbook.charts.vega.patterns import mixture_bars
from headbook.charts.vega.relations import relation_layers
from headbook.charts.vega.similar import head_points
from headbook.charts.vega.tags import tag_heads, tag_layers

__all__ = [
    "Arc",
    "AttentionLine",
    "Bar",
    "Drawing",
    "Figure",
    "Picture",
    "arc_diagram",
    "attention_lines",
    "attention_map",
    "bracket_diagram",
    "columnar",
    "files",
    "head_points",
    "heat_map",
    "layer_curve",
    "mixture_bars",
    "occurrence_paths",
    "offset_profile",
    "relation_layers",
    "runtime",
    "state_curves",
    "state_matrix",
    "tag_heads",
    "tag_layers",
    "unchecked",
]
