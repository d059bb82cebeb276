"""A site that was written, and its display in a notebook or browser."""

import os
import webbrowser
from dataclasses import dataclass
from pathlib import Path

from headbook.errors import ConfigError
from headbook.progress import notebook

FRAME_HEIGHT = 700  # pixels of the frame that shows a site in a notebook


@dataclass(frozen=True)
class Site:
    """A site that was written.

    Attributes:
        index: the page to open.
        pages: number of pages.
        size: bytes of the whole site.
    """

    index: Path
    pages: int
    size: int

    @property
    def path(self) -> Path:
        """Folder of the site."""
        return self.index.parent

    def show(self) -> None:
        """Show the site: in a frame below the cell of a notebook, elsewhere in the browser.

        A frame needs the folder below that of the notebook, since a notebook's server shows no
        other files.
        """
        ipython = notebook()
        if ipython is None:
            webbrowser.open(self.index.resolve().as_uri())
            return
        address = Path(os.path.relpath(self.index)).as_posix()
        ipython.display.display(ipython.display.IFrame(address, "100%", FRAME_HEIGHT))


def show_site(site: Site | None) -> None:
    """Show a site that was written, as `Site.show` does.

    Raises:
        ConfigError: no site was written.
    """
    if site is None:
        raise ConfigError("show: got no site; expected out=, a folder to write it")
    site.show()
