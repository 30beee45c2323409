"""What the tools of deep checks print: one module a tool, each a pure parser that raises ValueError.

A parser says what was printed, never whether that is good: `nhc.node.checks.deep_*` judge, and want proof that a test
ran.
"""
