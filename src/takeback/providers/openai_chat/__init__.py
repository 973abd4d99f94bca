"""OpenAI's Chat Completions, which many other providers speak too."""
