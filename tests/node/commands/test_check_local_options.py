"""What both readers make of the options of `nhc check local` has the types that the code is checked with."""

from typing import Optional, Tuple, get_args, get_origin

from nhc.core.command_line.options import CheckLocal, ReportOutput, read

NAMES = {"Tuple": Tuple, "Optional": Optional}


def of_type(value, kind):
    if get_origin(kind) is tuple:
        return isinstance(value, tuple) and all(of_type(each, get_args(kind)[0]) for each in value)
    return type(value) in (get_args(kind) or (kind,))


def test_what_is_read_is_of_the_declared_types():
    words = ["-c", "a", "-qv", "--check", "x", "-t", "5s", "--max-age", "1m", "-f", "json"]
    for args in (read(CheckLocal, ()), read(CheckLocal, words), CheckLocal()):
        annotations = {**CheckLocal.__annotations__, **ReportOutput.__annotations__}
        assert set(annotations) == set(CheckLocal.declared)
        for name, annotation in annotations.items():
            kind = eval(annotation, NAMES)
            assert of_type(getattr(args, name), kind), (name, kind, getattr(args, name))
    assert read(CheckLocal, ()) == CheckLocal()
