"""What a store has to say to whoever runs it: through ``logging``, which is loaded when there is something to say."""

from __future__ import annotations


def warn(text: str, *values: object) -> None:
    """Tell of something that somebody should look at."""
    import logging

    logging.getLogger("takeback").warning(text, *values, stacklevel=2)


def note(text: str, *values: object) -> None:
    """Tell of something that only helps to find out what happened."""
    import logging

    logging.getLogger("takeback").debug(text, *values, stacklevel=2)
