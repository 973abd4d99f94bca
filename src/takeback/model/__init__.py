"""Frozen value types: what the store returns. They hold data and never do I/O.

Messages and usage may be in a provider's form. What reads those lies above this layer, so it is handed in: the package
sets ``forms`` before anything here can be used, and nothing here imports it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .given import Forms

forms: Callable[[], Forms]
"""Load what reads the forms of the providers."""
