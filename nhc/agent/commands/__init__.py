"""The commands of `nhc.agent`."""
