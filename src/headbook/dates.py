"""The one date of a study."""

import datetime as dt
import os

from headbook.errors import ConfigError


def today() -> str:
    """The one date of a study; ``SOURCE_DATE_EPOCH`` makes it the same again.

    Raises:
        ConfigError: that variable holds no date.
    """
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    if not epoch:
        return dt.datetime.now(dt.UTC).date().isoformat()
    try:
        return dt.datetime.fromtimestamp(int(epoch), dt.UTC).date().isoformat()
    except (ValueError, OverflowError, OSError):
        raise ConfigError(
            f"SOURCE_DATE_EPOCH: {epoch!a} came; expected whole seconds since 1970, up to the "
            "year 9999, or no such variable"
        ) from None
