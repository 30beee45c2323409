"""The console's settings: the example, and what does not fit together."""

import pytest

from nhc.console.access import Role
from nhc.console.settings import parse
from nhc.core.settings.settings_file import SettingsError

TOKEN = '[[people.anna.tokens]]\nsha256 = "' + "0" * 64 + '"\n'


def test_what_a_file_says_of_people_and_the_proxy():
    found = parse(
        '[people.anna]\nroles = ["operator"]\n' + TOKEN + 'ends = "2027-01-31"\n'
        '[proxy]\nsecret_file = "/s"\naddresses = ["10.0.0.7"]\n[links]\nA = "https://a/{node}"\n'
    )  # fmt: skip
    assert found.register.people["anna"].roles == {Role.OPERATOR}
    assert found.register.tokens[0].ends == 1801353600.0
    assert found.proxy.addresses == ("10.0.0.7",)
    assert found.links == (("A", "https://a/{node}"),)


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
        ('[proxy]\nsecret_file = "s"\naddresses = ["here"]\n', "is not an address or a network"),
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
