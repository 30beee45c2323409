"""Settings of notices: what is wrong is one line, and a secret is in none."""

from __future__ import annotations

import pytest

from nhc.console.notices import settings as notices_settings
from nhc.core.settings.settings_file import SettingsError
from tests.support.run import nhc


@pytest.fixture
def secret(tmp_path):
    def make(text, mode=0o600):
        path = tmp_path / "secret"
        path.write_text(text)
        path.chmod(mode)
        return path

    return make


def read(text):
    return notices_settings.parse(text, "notices.toml")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("wait = 'soon'", "notices.toml:1: wait: 'soon' is not a duration"),
        ("[channels.a]\nurl = 'x'", "notices.toml:1: channels.a.kind: missing"),
        ("[channels.a]\nkind = 'pigeon'", "notices.toml:2: channels.a.kind: 'pigeon' is not one of alertmanager"),
        ("[channels.a]\nkind = 'alertmanager'\nurl = 'am:9093'", "notices.toml:3: channels.a.url: the value"),
        ("[channels.a]\nkind = 'slack'", "notices.toml:1: channels.a.url-file: missing"),
        ("[channels.a]\nkind = 'slack'\nurl-file = '/nonexistent'", "url-file: /nonexistent: No such file"),
        ("[channels.a]\nkind='mail'\nhost='h'\nfrom='a@b'\nto=['c@d']\nuser='u'\ntls='none'", "in the clear"),
        ("[channels.a]\nkind='mail'\nhost='h'\nfrom='a@b'\nto=[\"c\\n@d\"]", "addresses such as"),
        ("colour = 'red'", "there is no such key"),
    ],
)
def test_a_mistake_is_one_line(text, said):
    with pytest.raises(SettingsError) as raised:
        read(text)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [
        ("http://hooks/SECRET", 0o644, "can be read by everybody: chmod o-r"),
        ("ftp://hooks/SECRET", 0o600, "no URL that begins with"),
        ("  \n", 0o600, "is empty"),
    ],
)
def test_a_secret_that_cannot_be_used_is_not_shown(secret, content, mode, said):
    with pytest.raises(SettingsError, match=said) as raised:
        read(f"[channels.a]\nkind = 'slack'\nurl-file = '{secret(content, mode)}'")
    assert "SECRET" not in str(raised.value)


def test_secrets_are_changed_one_after_the_other(secret):
    path = secret("whsec_" + "bmV3" * 8 + "\nwhsec_" + "b2xk" * 8 + "\n", 0o640)
    found = read(f"[channels.a]\nkind = 'webhook'\nurl = 'http://h/'\nsecret-file = '{path}'")
    assert found.channels["a"].way.secrets == (b"new" * 8, b"old" * 8)


@pytest.mark.thorough
@pytest.mark.parametrize("words", [
    ("serve", "notices"), ("serve", "notices", "--check-settings"), ("status", "notices"), ("notices", "test", "mail"),
])  # fmt: skip
def test_without_settings_one_line_says_so_and_what_to_do(words):
    done = nhc(*words)
    said = f"nhc {words[0]} {words[1]}: there is no /etc/nhc/notices.toml: name the settings with -s\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)
