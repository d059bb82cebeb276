"""LaTeX environments and BibTeX entries of figures."""

import re
from collections.abc import Iterable
from typing import Protocol

from headbook.charts import Drawable, Figure
from headbook.pages.parts.page import SiteFacts
from headbook.report.wording import unbroken, visible

TEXT_COMMANDS = {
    "\\": r"\textbackslash{}",
    "{": r"\textbraceleft{}",  # BibTeX counts bare braces, escaped or not
    "}": r"\textbraceright{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "…": r"\ldots{}",
    "·": r"\textperiodcentered{}",
    "–": "--",
    "—": "---",
    "“": "``",
    "”": "''",
    "‘": "`",
    "’": "'",
    "\xa0": "~",
    "\u202f": r"\,",
    "\n": " ",
    "\t": " ",
}
MATH_COMMANDS = {
    "−": "-",
    "→": r"\rightarrow",
    "×": r"\times",
    "≤": r"\leq",
    "≥": r"\geq",
    "√": r"\surd",
}
LATEX_ESCAPES = str.maketrans(
    {sign: "\\" + sign for sign in "%&#_$"}
    | TEXT_COMMANDS
    | {sign: f"${command}$" for sign, command in MATH_COMMANDS.items()}
)
DOCUMENT_HEAD = r"""% Needs \usepackage{graphicx}; letters beyond Latin need XeLaTeX or LuaLaTeX.
% Figures are 3.3 inches wide, one column; those without -column in their name 6.9, for figure*.
% Each figure's data is in the CSV file of its name; figures.bib has an entry to cite it.
"""


class Captioned(Protocol):
    """A figure, or a link to its file, with what its BibTeX entry needs."""

    @property
    def name(self) -> str:
        """Name of the figure's files."""

    @property
    def caption(self) -> str:
        """Caption of the figure."""


def escaped(text: str) -> str:
    """Return text that LaTeX and BibTeX print unchanged."""
    return unbroken(visible(text)).translate(LATEX_ESCAPES)


def latex_key(figure: Captioned) -> str:
    """Return a figure's key in labels and bibliographies: letters, digits and hyphens."""
    return re.sub(r"[^A-Za-z0-9]+", "-", figure.name)


def snippet(figure: Drawable, source: str) -> str:
    """Return a figure environment.

    Args:
        source: sentence on model and data at the end of the caption.
    """
    column, page = ("-column", "") if isinstance(figure, Figure) else ("", "*")
    return rf"""
% Cite as \cite{{headbook-{latex_key(figure)}}}.
\begin{{figure{page}}}
  \centering
  \includegraphics{{{figure.name}{column}.pdf}}
  \caption{{{escaped(f"{figure.caption} {source}")}}}
  \label{{fig:{latex_key(figure)}}}
\end{{figure{page}}}
"""


def entry(figure: Captioned, site: SiteFacts, year: str) -> str:
    """Return a BibTeX entry of a figure with the model in its title; no year if it is unknown."""
    short_caption = re.split(r"[.;] |\.$", figure.caption)[0]
    title = short_caption if site.model in short_caption else f"{short_caption} ({site.model})"
    year_field = f"\n  year = {{{year}}}," if year else ""
    return f"""@misc{{headbook-{latex_key(figure)},
  key = {{Headbook}},
  title = {{{escaped(title)}}},{year_field}
  howpublished = {{Figure {escaped(figure.name)} in ``{escaped(site.title)}''}},
  note = {{{escaped(site.provenance)}}}
}}
"""


def latex_document(figures: Iterable[Drawable], source: str) -> str:
    """Return figure environments, one after another, to copy from or to input whole."""
    return DOCUMENT_HEAD + "".join(snippet(figure, source) for figure in figures)
