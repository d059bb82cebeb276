"""Loading of models, their architecture, forward passes, and readings of weights and states."""

import logging

# Transformers imports torchao if it is installed, and torchao warns about shared libraries that it
# does not find. Whichever module of this package imports transformers first, the loggers have been
# told before; a level that somebody has set stays.
_IMPORT_LOGGERS = [
    logger
    for logger in map(logging.getLogger, ("torchao", "torch.utils._pytree"))
    if logger.level == logging.NOTSET
]
for _logger in _IMPORT_LOGGERS:
    _logger.setLevel(logging.ERROR)


def restore_import_loggers() -> None:
    """Let torchao warn again: once transformers is imported, or before that with ``--verbose``."""
    while _IMPORT_LOGGERS:
        _IMPORT_LOGGERS.pop().setLevel(logging.NOTSET)
