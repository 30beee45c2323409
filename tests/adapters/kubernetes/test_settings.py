"""The controller's settings file: what it says is done, and a mistake in it is one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from nhc.core.limits import Limit
from nhc.core.settings.settings_file import SettingsError
from nhc_adapters.kubernetes.controller.settings import make, read
from nhc_adapters.kubernetes.nodes.conditions import JOB_ERROR, KERNEL_LOG


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "kubernetes.toml"
    path.write_text(text)
    return str(path)


def test_what_only_this_file_has(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text('[bounds.fleet]\nout = "5"\n')
    text = 'policy = "policy.toml"\n[drain-rules]\ngrace = "30s"\n[expected."p5.48xlarge"]\n"nvidia.com/gpu" = 8\n'
    settings = read(written(tmp_path, text))
    assert settings.policy.ceiling == Limit(nodes=5)
    assert settings.expected == {"p5.48xlarge": {"nvidia.com/gpu": 8}}
    assert settings.rules.grace == 30
    assert len(settings.sources) == 2


def test_named_faults_stand_alone_and_else_the_vocabularies_say(tmp_path: Path) -> None:
    assert [fault.type for fault in make(["nhc", "neuron"]).faults] == ["NhcHealthy", "NeuronHealth"]
    assert [fault.type for fault in make(["nhc"], ["GpuXid"]).faults] == ["GpuXid"]


def test_what_the_controller_finds_itself_counts_where_it_looks(tmp_path: Path) -> None:
    text = '[podlogs]\nnamespaces = ["a"]\n[loki]\nurl = "http://l"\n'
    assert [fault.type for fault in read(written(tmp_path, text)).faults][1:] == [JOB_ERROR, KERNEL_LOG]


def test_the_command_line_outranks_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, 'apply = true\nnamespace = "a"\n')
    found = read(path, ["namespace=b", "drain-rules.grace=30s", "faults=GpuXid", "faults=A=True,10m"], apply=False)
    assert (found.apply, found.namespace, found.rules.grace) == (False, "b", 30)
    assert [fault.type for fault in found.faults] == ["GpuXid", "A"]
    assert read(path, ["selector=a=b"]).apply


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("aply = true", "did you mean 'apply'?"),
        ("apply = 'yes'", "neither true nor false"),
        ("vocabularies = ['klingon']", "no vocabulary 'klingon'"),
        ("faults = ['GpuXid=Perhaps']", "not True, False or Unknown"),
        ("silent-after = 'soon'", "is not a duration"),
        ("drain = 1\ndrain = 2", "Cannot overwrite"),
        ("[loki]\n[podlogs]\n[loki]", "line 3: the table [loki] stands a second time"),
        ("[expected.a]\n[expected.a]", "the table [expected.a] stands a second time"),
        ("[podlogs]\npods = -1", "kubernetes.toml:2: podlogs.pods: -1 is too small: expected 0 or more"),
        ("[podlogs]\npatterns = ['CUDA error (']", "podlogs.patterns: 'CUDA error (' is no pattern: "),
        ("[podlogs]\npatterns = ['x*']", "podlogs.patterns: 'x*' fits every line"),
        ("allocatable-grace = 'soon'", "is not a duration"),
        ("[loki]\nuri = 'x'", "did you mean 'url'?"),
        ("expected = 3", "not a table"),
        ("policy = 'gone.toml'", "gone.toml: No such file"),
    ],
)
def test_a_mistake_is_one_line_with_the_file(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read(written(tmp_path, text))
    assert said in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)
