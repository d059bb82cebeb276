"""Whether charts can be drawn under the limits of this process."""

import subprocess
import sys

from headbook.errors import ResourceError

PROBE = "import vl_convert; vl_convert.vegalite_to_svg({'mark': 'point', 'data': {'values': [{}]}})"


def check_room() -> None:
    """Refuse a limit of address space under which the engine of vl-convert would end the process.

    It reserves tens of gigabytes of addresses, which take no memory, and dies without them: so
    another process tries where there is a limit.

    Raises:
        ResourceError: with what to do.
    """
    if sys.platform == "win32":
        return
    import resource  # noqa: PLC0415 - not everywhere

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return
    tried = subprocess.run([sys.executable, "-c", PROBE], check=False, capture_output=True)  # noqa: S603
    if tried.returncode:
        raise ResourceError(
            f"a limit of {limit // 10**6:,} MB of address space came (ulimit -v), under which no "
            "chart can be drawn: that reserves addresses, not memory; expected ulimit -v unlimited"
        )
