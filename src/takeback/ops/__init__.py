"""The rules of sessions and agents, as plain functions of a transaction. They import no driver and never commit."""
