"""The outcomes of a transaction that did not succeed: nothing was stored, or the outcome is not known yet."""

from __future__ import annotations

from typing import Any

import psycopg

from ...errors import BackendError, Error
from .pool import words


class Again(Exception):
    """Nothing was stored; the call may be run again."""

    def __init__(self, error: Error) -> None:
        self.error = error


class InDoubt(Exception):
    """The connection broke while a transaction committed."""

    def __init__(
        self,
        error: psycopg.Error,
        *,
        number: tuple[str, str] | None = None,
        value: Any = None,
        again: bool = False,
    ) -> None:
        self.error = error
        self.number = number
        self.value = value
        self.again = again  # whether running it again stores it only once


def in_doubt(doubt: InDoubt) -> BackendError:
    """Return the error for a call whose outcome is unknown."""
    return BackendError(
        f"the connection broke while this was being stored ({words(doubt.error)}); it may or may not be stored."
        " Read to find out, or call again with an idempotency key"
    )
