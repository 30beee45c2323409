"""Alert rules, dashboards and mixin: read by promtool, firing when they should, naming what exists."""

from __future__ import annotations

import ast
import json
import re
import subprocess
from shutil import which

import pytest

from nhc.core.render.prometheus import UNITS
from nhc_mixin import __main__ as generator
from nhc_mixin import alerts, dashboards
from tests.support.require import need
from tests.support.run import ROOT

HERE = ROOT / "adapters" / "prometheus"
ALERTS = [one for group in alerts.GROUPS for one in group.alerts]
PANELS = [(board, panel) for board in dashboards.DASHBOARDS for panel in board.panels]
PANEL_IDS = [f"{board.name}: {panel.title}" for board, panel in PANELS]
NAME = re.compile(r"\b(?:nhc_\w+|up\b|problem_\w+)")
FUNCTIONS_OF_COUNTERS = re.compile(r"(?:rate|increase)\((nhc_\w+_total)")


@pytest.fixture(scope="module")
def promtool():
    found = which("promtool")
    need("promtool", found, "apt-get install prometheus")
    return found


@pytest.fixture(scope="module")
def existing():
    """Every metric that the code exposes, with its kind, read from the calls and tables that name it."""
    found = {"up": "gauge"}
    prefixes, of_each = set(), {}  # what every service of rounds shows under a prefix of its own
    for path in [*(ROOT / "nhc").rglob("*.py"), *(ROOT / "adapters" / "nhc_adapters").rglob("*.py")]:
        text = path.read_text()
        prefixes.update(re.findall(r'^    prefix = "(nhc_\w+)"$', text, re.MULTILINE))
        if not any(word in text for word in ("gauge(", "counter(", "Family(", "nhc_server_")):
            continue  # to parse all files takes two seconds
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
                name, called = node.args[0], node.func.id
                if called in ("gauge", "counter", "Family") and isinstance(name, ast.Constant):
                    kind = node.args[1].value if called == "Family" else called
                    found[str(name.value)] = str(kind)
                elif called in ("gauge", "counter") and isinstance(name, ast.JoinedStr):
                    of_each[str(name.values[-1].value)] = called
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                value = node.value.value
                if isinstance(value, str) and re.fullmatch(r"nhc_server_\w+", value):
                    found[value] = "counter" if value.endswith("_total") else "gauge"
    found.update({f"{prefix}{end}": kind for prefix in prefixes for end, kind in of_each.items()})
    source = (ROOT / "nhc/core/render/prometheus.py").read_text()
    found.update(dict.fromkeys(re.findall(r'^    "(nhc_\w+)":', source, re.MULTILINE), "gauge"))
    found.update({f"nhc_check_value{suffix}": "gauge" for suffix, _ in UNITS.values()})
    return found


def names(expression):
    return set(NAME.findall(re.sub(r'"[^"]*"', "", expression)))


def test_the_files_are_those_that_would_be_made_now():
    made = generator.files()
    assert {name: (HERE / name).read_text() for name in made} == made
    assert {str(path.relative_to(HERE)) for path in HERE.rglob("*") if path.is_file()} == set(made)


@pytest.mark.thorough
def test_promtool_takes_the_rules_without_a_word_of_complaint(promtool):
    run = subprocess.run(
        [promtool, "check", "rules", "--lint=all", "--lint-fatal", str(HERE / "alerts.json")],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{len(ALERTS)} rules found" in run.stdout


@pytest.mark.thorough
@pytest.mark.parametrize("one", ALERTS, ids=lambda one: one.name)
def test_each_alert_can_be_acted_on(one, existing):
    assert one.severity in ("critical", "warning", "info")
    assert one.summary.endswith(".")
    assert one.means.endswith(".")
    assert one.actions
    assert all(action.endswith(".") for action in one.actions)
    assert f"### {one.name}\n" in (ROOT / alerts.RUNBOOKS).read_text()
    assert names(one.expression) <= set(existing)
    for name in names(one.expression):
        if existing[name] == "counter":
            assert name in FUNCTIONS_OF_COUNTERS.findall(one.expression), f"{name} is a counter"
    # An alert that fires where a series is absent says so; none calls absence well (`or vector(0)`, `== bool`).
    assert not re.search(r"or\s+(on\s*\(\)\s*)?vector\(|== bool", one.expression)


def test_what_is_absent_is_told():
    gone = {one.name for one in ALERTS if "absent(" in one.expression or "offset" in one.expression}
    down = {one.name for one in ALERTS if one.expression.endswith("== 0") and one.expression.startswith("up{")}
    assert gone == {"NhcAgentsGone", "NhcComponentGone"}
    assert down == {"NhcAgentDown", "NhcComponentDown"}


#: Each alert: series under which it fires, and series under which it does not; values from minute to minute.
NODE = 'nhc_node_verdict{job="nhc",instance="n%s"}'
LONG = "x300"
FIVE_LOST = [
    pair
    for n in range(5)
    for pair in (
        (f'nhc_problem{{job="nhc",instance="n{n}",check="check_gpu",target="gpu0",reason="GpuLost"}}', f"1+0{LONG}"),
        (f'nhc_check_verdict{{job="nhc",instance="n{n}",check="check_gpu",target="gpu0"}}', f"4+0{LONG}"),
    )
]


def one_gauge(name, bad, good, labels="", job="nhc"):
    series = f'{name}{{job="{job}",instance="a"{labels}}}'
    return [(series, f"{bad}+0{LONG}")], [(series, f"{good}+0{LONG}")]


def growing(name, labels=""):
    series = f'{name}{{job="nhc",instance="a"{labels}}}'
    return [(series, f"0+1{LONG}")], [(series, f"7+0{LONG}")]


CASES = {
    "NhcNodeCritical": one_gauge("nhc_node_verdict", 4, 2),
    "NhcNodeUnknown": one_gauge("nhc_node_verdict", 3, 1),
    "NhcNodeFlapping": ([(NODE % 1, " ".join(["1", "4"] * 150))], [(NODE % 1, f"4+0{LONG}")]),
    "NhcFleetUnhealthy": (
        [(NODE % n, f"{4 if n < 2 else 1}+0{LONG}") for n in range(20)],
        [(NODE % n, f"{4 if n < 1 else 1}+0{LONG}") for n in range(20)],
    ),
    "NhcSameFaultMany": (FIVE_LOST, FIVE_LOST[:8]),
    "NhcAgentDown": one_gauge("up", 0, 1),
    "NhcAgentsGone": ([(NODE % 1, f"1+0{LONG}")], [('up{job="nhc",instance="a"}', f"0+0{LONG}")]),
    "NhcAgentStale": (
        one_gauge("nhc_agent_healthy", 0, 1)[0],
        [*one_gauge("nhc_agent_healthy", 0, 1)[0], *one_gauge("nhc_agent_paused", 1, 0)[0]],
    ),
    "NhcAgentPausedLong": one_gauge("nhc_agent_paused", 1, 0),
    "NhcConfigRefused": one_gauge("nhc_agent_config_refused", 1, 0),
    "NhcSinkDown": one_gauge("nhc_agent_sink_up", 0, 1, ',sink="events"'),
    "NhcSinkLost": growing("nhc_agent_sink_lost_total", ',sink="events"'),
    "NhcKernelLogLost": growing("nhc_agent_kernel_log_lost_total"),
    "NhcRoundsFailing": growing("nhc_agent_rounds_total", ',outcome="failed"'),
    "NhcComponentDown": one_gauge("up", 0, 1, job="nhc-console"),
    "NhcComponentGone": (
        [('up{job="nhc-console",instance="a"}', "1+0x200 stale _x100")], one_gauge("up", 1, 1, job="nhc-console")[1],
    ),
    "NhcFleetUnread": one_gauge("nhc_fleet_source_up", 0, 1),
    "NhcFleetPictureOld": one_gauge("nhc_fleet_age_seconds", 400, 5),
    "NhcFleetSilent": (
        [('nhc_fleet_nodes{job="nhc-console",state="stale"}', f"3+0{LONG}"),
         ('nhc_fleet_nodes{job="nhc-console",state="never"}', f"3+0{LONG}"),
         ('nhc_fleet_nodes{job="nhc-console",state="ok"}', f"94+0{LONG}")],
        [('nhc_fleet_nodes{job="nhc-console",state="stale"}', f"3+0{LONG}"),
         ('nhc_fleet_nodes{job="nhc-console",state="ok"}', f"97+0{LONG}")],
    ),
    "NhcServerStoreDown": one_gauge("nhc_server_store_up", 0, 1),
    "NhcServerReportsLost": growing("nhc_server_reports_lost_total"),
    "NhcNoticesNoLeader": one_gauge("nhc_notices_leader", 0, 1),
    "NhcNoticesChannelDown": one_gauge("nhc_notices_channel_up", 0, 1),
    "NhcNoticesLost": growing("nhc_notices_lost_total"),
    "NhcRemedyNoLeader": one_gauge("nhc_remedy_leader", 0, 1),
    "NhcRemedyBehind": (
        one_gauge("nhc_remedy_last_round_timestamp_seconds", 0, 0)[0],
        [('nhc_remedy_last_round_timestamp_seconds{job="nhc-remedy",instance="a"}', f"0+60{LONG}")],
    ),
    "NhcRemedyBreakerOpen": one_gauge("nhc_remedy_breaker_open", 1, 0),
    "NhcRemedyStalled": one_gauge("nhc_remedy_stalled", 2, 0),
    "NhcRemedyCannotRead": one_gauge("nhc_remedy_problems", 1, 0),
    "NhcJobNoLeader": one_gauge("nhc_job_leader", 0, 1),
    "NhcJobBehind": (
        one_gauge("nhc_job_last_round_timestamp_seconds", 0, 0)[0],
        [('nhc_job_last_round_timestamp_seconds{job="nhc-job",instance="a"}', f"0+60{LONG}")],
    ),
    "NhcJobGivenUp": (
        one_gauge("nhc_job_left", 1, 0, ',why="limit"')[0], one_gauge("nhc_job_left", 4, 4, ',why="application"')[1],
    ),
    "NhcJobHeld": (
        one_gauge("nhc_job_oldest_restart_seconds", 1900, 0, ',state="held"')[0],
        one_gauge("nhc_job_oldest_restart_seconds", 1900, 1900, ',state="holding"')[1],
    ),
    "NhcJobCannotRead": one_gauge("nhc_job_problems", 1, 0),
    "NhcControllerNoLeader": one_gauge("nhc_kubernetes_leading", 0, 1),
    "NhcWithheld": one_gauge("nhc_kubernetes_nodes_withheld", 3, 0),
}  # fmt: skip
EVALUATED_AT = {"NhcComponentGone": "230m"}


def fires(promtool, directory, cases):
    """The alerts that fire, by case, each by its rule alone: every rule is judged anew at each of 300 minutes.

    promtool says what it got where that is not what was expected: nothing.
    """
    directory.mkdir()
    rules = {
        rule["alert"]: rule
        for group in json.loads((HERE / "alerts.json").read_text())["groups"]
        for rule in group["rules"]
    }  # every rule is an alert: none needs another's records
    paths = []
    for name, series in cases.items():
        alone = directory / f"{name}.rule.json"
        alone.write_text(json.dumps({"groups": [{"name": name, "rules": [rules[name]]}]}))
        asked = {
            "rule_files": [str(alone)],
            "evaluation_interval": "1m",
            "tests": [{
                "interval": "1m",
                "input_series": [{"series": one, "values": values} for one, values in series],
                "promql_expr_test": [{
                    "expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}}) or vector(0)',
                    "eval_time": EVALUATED_AT.get(name, "299m"),
                    "exp_samples": [{"labels": "{}", "value": -1}],
                }],
            }],
        }  # fmt: skip
        paths.append(directory / f"{name}.json")
        paths[-1].write_text(json.dumps(asked))
    run = subprocess.run(
        [promtool, "test", "rules", *map(str, paths)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120,
    )  # fmt: skip
    found = {}
    for said in run.stdout.split("Unit Testing:  ")[1:]:
        got = re.search(r"got:\s*\n?.*?(\d+)E?[+\d]*\s*$", said, re.MULTILINE | re.DOTALL)
        assert got, said
        found[said.split()[0].rpartition("/")[2][: -len(".json")]] = float(got[1]) > 0
    return found


@pytest.mark.slow
def test_every_alert_fires_when_it_should_and_only_then(promtool, tmp_path):
    assert set(CASES) == {one.name for one in ALERTS} - {"NhcWatchdog"}
    bad, good = ({name: case[number] for name, case in CASES.items()} for number in (0, 1))
    assert fires(promtool, tmp_path / "bad", bad) == dict.fromkeys(CASES, True)
    assert fires(promtool, tmp_path / "good", good) == dict.fromkeys(CASES, False)


def without_variables(expression):
    for variable, value in (("$__rate_interval", "5m"), ("$job", ".+"), ("$instance", ".+")):
        expression = expression.replace(variable, value)
    return expression


@pytest.mark.parametrize(("board", "panel"), PANELS, ids=PANEL_IDS)
def test_each_panel_says_what_it_shows(board, panel, existing):
    assert panel.title
    assert panel.description.endswith(".")
    assert panel.unit
    assert panel.queries
    for query in panel.queries:
        assert names(query.expression)
        assert names(query.expression) <= set(existing)
        assert query.legend
        for name in names(query.expression):
            counted = existing[name] == "counter"
            assert counted == (name in FUNCTIONS_OF_COUNTERS.findall(query.expression)), name
        for window in re.findall(r"\[([^\]]+)\]", query.expression):
            assert window in ("$__rate_interval", "1h")


def test_promtool_takes_every_query_of_the_dashboards(promtool, tmp_path):
    every = {without_variables(query.expression) for _, panel in PANELS for query in panel.queries}
    rules = [{"record": f"nhc:query{number}", "expr": one} for number, one in enumerate(sorted(every))]
    path = tmp_path / "queries.json"
    path.write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}))
    run = subprocess.run([promtool, "check", "rules", str(path)], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{len(every)} rules found" in run.stdout


@pytest.mark.parametrize("board", dashboards.DASHBOARDS, ids=lambda board: board.name)
def test_a_dashboard_keeps_grafanas_rules(board, existing):
    made = dashboards.value(board)
    variables = {one["name"]: one for one in made["templating"]["list"]}
    assert list(variables) == ["datasource", "job", "instance"]
    assert variables["datasource"]["type"] == "datasource"
    assert made["editable"] is False
    assert made["uid"] == f"nhc-{board.name}"
    ids = [panel["id"] for panel in made["panels"]]
    assert len(set(ids)) == len(ids)
    places = [panel["gridPos"] for panel in made["panels"]]
    cells = [(place["x"] + x, place["y"]) for place in places for x in range(place["w"])]
    assert len(set(cells)) == len(cells), "two panels lie on one another"
    assert max(x for x, _ in cells) < 24
    assert all(panel["datasource"]["uid"] == "${datasource}" for panel in made["panels"])
    assert names(board.probe) <= set(existing)


def test_the_mixin_gives_what_kube_prometheus_takes():
    rjsonnet = pytest.importorskip("rjsonnet")
    said = rjsonnet.evaluate_snippet(
        "site.jsonnet",
        f"local m = (import '{HERE / 'mixin.libsonnet'}') + {{_config+:: {{runbooks: 'https://site/alerts'}}}};"
        " {alerts: m.prometheusAlerts, boards: m.grafanaDashboards}",
    )
    shown = json.loads(said)
    assert set(shown["boards"]) == {f"nhc-{board.name}.json" for board in dashboards.DASHBOARDS}
    rules = [rule for group in shown["alerts"]["groups"] for rule in group["rules"]]
    assert [rule["alert"] for rule in rules] == [one.name for one in ALERTS]
    assert rules[0]["annotations"]["runbook_url"] == "https://site/alerts#nhcnodecritical"


def test_a_directory_that_cannot_be_written_is_one_line(capsys):
    assert generator.main(["/dev/null/x"]) == 1
    assert capsys.readouterr().err == "/dev/null/x: Not a directory\n"


def test_a_runbook_url_is_an_address_or_is_not_there():
    first = alerts.rules()["groups"][0]["rules"][0]["annotations"]
    assert first["runbook"] == "adapters/prometheus/alerts.md#nhcnodecritical"
    assert "runbook_url" not in first


def test_rules_of_a_site_have_its_address():
    made = json.loads(generator.files("https://wiki/nhc")["prometheusrule.json"])
    assert made["kind"] == "PrometheusRule"
    first = made["spec"]["groups"][0]["rules"][0]
    assert first["annotations"]["runbook_url"] == "https://wiki/nhc#nhcnodecritical"
