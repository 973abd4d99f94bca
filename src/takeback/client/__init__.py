"""The blocking API: it validates, runs one operation, and shows the result."""
