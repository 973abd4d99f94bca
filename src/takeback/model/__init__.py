"""Frozen value types: what the store gives back. They hold data and never do I/O."""
