"""The verbs, a theme to a file; ``app`` says which verb lies where."""
