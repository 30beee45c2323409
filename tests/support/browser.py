"""A real Chromium, driven through its own driver, that speaks to nobody but the page."""

from __future__ import annotations

import shutil
import tempfile

from tests.support.require import need
from tests.support.waiting import until

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--window-size=1280,900",
)  # fmt: skip


def start(*flags: str):
    """A browser. `quit` ends it, and deletes what it kept of its own."""
    from selenium import webdriver

    found = shutil.which("chromium") or shutil.which("chromium-browser")
    driver = shutil.which("chromedriver")
    need("chromium", found and driver, "packages chromium and chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = str(found)
    kept = tempfile.mkdtemp(prefix="nhc-chromium-")
    for flag in (*FLAGS, f"--user-data-dir={kept}", *flags):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})

    class Browser(webdriver.Chrome):
        def quit(self) -> None:
            try:
                super().quit()
            finally:
                shutil.rmtree(kept, ignore_errors=True)

    browser = Browser(options=options, service=webdriver.ChromeService(str(driver)))
    browser.set_script_timeout(60)
    return browser


def until_script(browser, script: str, what: str, seconds: float = 60.0):
    """Wait until a script returns something true, and return that."""
    return until(lambda: browser.execute_script(script), seconds, what=what)


def scheme(browser, name: str) -> None:
    """Light or dark, as the system would say."""
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": name}]}
    )
