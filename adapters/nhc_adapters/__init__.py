"""Adapters: they translate one report into what each scheduler or provider understands. They satisfy the Protocols of
nhc.marks.ports.adapter.
"""
