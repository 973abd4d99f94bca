"""The contract that every store keeps, as a test class.

A backend's whole test is a subclass that says how to open it:

    class TestMyBackend(StoreContract):
        def open(self, tmp_path, **options):
            return my_open(tmp_path / "store", **options)

``open`` called twice with one ``tmp_path`` must reach the same data if the store says it is persistent.
"""

from __future__ import annotations

from .base import said
from .branches import Branches
from .messages import Messages
from .races import Races
from .stores import Stores


class StoreContract(Messages, Races, Branches, Stores):
    """Subclass and define ``open``."""


__all__ = ["StoreContract", "said"]
