"""One source of facts a file: a pure parser on text, and a gatherer on a Host."""
