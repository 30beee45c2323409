"""The commands of `nhc.remedy`."""
