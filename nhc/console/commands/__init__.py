"""The commands of `nhc.console`."""
