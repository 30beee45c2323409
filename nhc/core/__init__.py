"""Values, checks' declarations, the configuration's language, and the edges of the operating system."""
