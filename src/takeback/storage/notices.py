"""Log messages of a store; ``logging`` is imported only when there is something to log."""

from __future__ import annotations


def warn(text: str, *values: object) -> None:
    """Log something that somebody should look into."""
    import logging

    logging.getLogger("takeback").warning(text, *values, stacklevel=2)


def note(text: str, *values: object) -> None:
    """Log something that only helps in finding out what happened."""
    import logging

    logging.getLogger("takeback").debug(text, *values, stacklevel=2)
