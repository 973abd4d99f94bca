"""Tools to test against Holdfast, and to test Holdfast itself."""
