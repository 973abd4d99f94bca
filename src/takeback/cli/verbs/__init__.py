"""The verbs, grouped by theme; ``app`` lists which module holds which verb."""
