"""The commands of `nhc.lab`."""
