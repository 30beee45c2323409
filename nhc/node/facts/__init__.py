"""Each file is one source of facts: a pure parser of text, and a gatherer on a Host."""
