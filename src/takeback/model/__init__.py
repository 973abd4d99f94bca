"""Frozen value types, as the store returns them. They hold data and never do I/O."""
