"""Headbook: a static site about a transformer's attention heads and its tokens' paths.

```python
import headbook

study = headbook.collect(["sentences.txt"], model="bert-base-uncased")
study.heads                      # a pandas frame: one row per head, metric, view and label
headbook.render(study, "site")   # pages that open with a double click
```
"""

from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = [
    "Site", "Study", "__version__", "ablate", "build", "collect", "compare", "render",
    "write_figures",
]  # fmt: skip

if TYPE_CHECKING:
    from headbook.run.ablate import ablate
    from headbook.run.collect import collect
    from headbook.site.builds import build, compare
    from headbook.site.figures import write_figures
    from headbook.site.sites import render
    from headbook.site.writer import Site
    from headbook.study.study import Study


def __getattr__(name: str) -> object:
    """Import a public name at its first use: rendering never loads torch, transformers or spaCy."""
    import warnings  # noqa: PLC0415
    from importlib import import_module  # noqa: PLC0415

    homes = {
        "ablate": "headbook.run.ablate",
        "build": "headbook.site.builds",
        "collect": "headbook.run.collect",
        "compare": "headbook.site.builds",
        "render": "headbook.site.sites",
        "Site": "headbook.site.writer",
        "Study": "headbook.report.tables",  # with the tables that `Study.tests` needs
        "write_figures": "headbook.site.figures",
    }
    if name not in homes:
        raise AttributeError(f"module 'headbook' has no attribute {name!r}")
    with warnings.catch_warnings():
        # In notebooks transformers warns that its progress bars need ipywidgets; none is shown.
        warnings.filterwarnings("ignore", "IProgress not found")
        return getattr(import_module(homes[name]), name)


def __dir__() -> list[str]:
    """Return the sorted public names, without modules imported as attributes."""
    return sorted(__all__)
