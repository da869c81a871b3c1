"""The shopping study: a small model on a synthetic market, from nothing to a table of rows (README.md)."""
