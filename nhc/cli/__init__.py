"""The nhc command."""
