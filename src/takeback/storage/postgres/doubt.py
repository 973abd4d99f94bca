"""What became of a transaction that did not simply go through: nothing was stored, or nobody can say yet."""

from __future__ import annotations

from typing import Any

import psycopg

from ...errors import BackendError, Error
from ..appends import KnownAppend
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
        again: KnownAppend | bool = False,
    ) -> None:
        self.error = error
        self.number = number
        self.value = value
        self.again = again  # whether to run it again stores it once: by its key, or this very append


def in_doubt(doubt: InDoubt) -> BackendError:
    """Give the error that says so."""
    return BackendError(
        f"the connection broke while this was being stored ({words(doubt.error)}); it may have been stored or not."
        " Read, or call again with an idempotency key"
    )
