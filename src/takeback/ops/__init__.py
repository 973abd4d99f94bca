"""What it means: plain functions of a transaction. They import no driver and never commit."""
