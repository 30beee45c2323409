"""Catalogues as data, each with its provenance."""
