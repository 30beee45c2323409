"""The console's settings: the example, and what does not fit together."""

from pathlib import Path

import pytest

from nhc.console.access import Role
from nhc.console.settings import load, parse
from nhc.core.settings.settings_file import SettingsError

EXAMPLE = Path(__file__).resolve().parents[2] / "conf/console.toml.example"
TOKEN = '[[people.anna.tokens]]\nsha256 = "' + "0" * 64 + '"\n'


def test_the_example_is_read_and_its_comments_too(tmp_path):
    found = load(str(EXAMPLE))
    assert found.register.people["anna"].roles == {Role.OPERATOR}
    assert found.links == (("Grafana", "https://grafana.cluster/d/node?var-node={node}"),)

    whole = (
        EXAMPLE.read_text().replace("# [[people", "[[people").replace("# sha256", "sha256").replace("# ends", "ends")
    )
    for name in ("tls", "certificate", "key", "clients", "proxy", "addresses", "secret_file", "user_header"):
        whole = whole.replace(f"# [{name}]", f"[{name}]").replace(f"# {name} =", f"{name} =")
    found = parse(whole)
    assert found.tls.clients == "/etc/nhc/people-ca.pem"
    assert found.proxy.addresses == ("10.0.0.7",)
    assert found.register.tokens[0].ends == 1801353600.0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            'listen = "0.0.0.0:9810"\n',
            "'0.0.0.0:9810' is not a loopback address: another one needs [tls]",
        ),
        ('listen = "0.0.0.0:9810"\n[tls]\ncertificate = "a"\nkey = "b"\n', "another one needs tokens"),
        ('listen = "9810"\n', "c.toml:1: listen: '9810' is not HOST:PORT or unix:PATH"),
        ('listen = "unix:"\n', "is not unix:PATH"),
        ('[tls]\ncertificate = "a"\n', "needs both certificate and key"),
        ('anyone = ["operator"]\n', "a person without a name may only look"),
        ('[people.anna]\nroles = ["boss"]\n', "c.toml:2: people.anna.roles: 'boss'"),
        ('[[people.anna.tokens]]\nsha256 = "abc"\n', "is not a SHA-256 in hexadecimal"),
        (TOKEN + 'ends = "soon"\n', "'soon' is not a date such as 2027-01-31"),
        ('[proxy]\nsecret_file = "s"\naddresses = ["here"]\n', "is not addresses or networks"),
        ("[proxy]\naddresses = []\n", "secret_file"),
        ('stale = "never"\n', "c.toml:1: stale: 'never' is not a duration"),
        ('lisen = "x"\n', "listen"),
    ],
)
def test_a_mistake_names_its_line_and_what_was_expected(text, said):
    with pytest.raises(SettingsError) as error:
        parse(text, "c.toml")
    assert said in str(error.value)
    assert "\n" not in str(error.value)
