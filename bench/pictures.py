"""The pictures of docs/console.md, taken of the demonstration: `make pictures`. Needs chromium and chromium-driver.

python bench/pictures.py docs/pictures        # those of the documents
python bench/pictures.py /tmp/screens --each  # each screen at 1440, 1024 and 390 pixels, light and dark: to look at
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
import urllib.request
from typing import Any

from nhc.lab.demo.play import Demo, make, step

SCREENS = {"needs": "needs", "map": "map?by=rack", "problems": "problems"}
"""Pictures by their names, each of one screen."""
SIZE = (1180, 720)
EACH = (
    "needs", "map?by=rack", "problems", "episodes", "episodes?which=ended", "episode/{episode}", "held", "maintenance",
    "nodes?text=", "nodes?text=nobody", "history?hours=1", "rates", "deep", "checks?fact=rack", "offenders", "audit",
    "health",
    "node/{node}", "timeline/{node}", "cause?check={check}&reason={reason}", "explain/Xid79?check=check_gpu_xid",
    "compare?a={node}&b=gpu002", "compare?by=rack&a=r01&b=r02", "login", "nothing",
)  # fmt: skip
"""Every screen, of a node and an episode that the demonstration has."""
WIDTHS = {1440: 900, 1024: 768, 390: 844}
LARGEST = 100_000
"""Bytes of a picture at most."""


def main(target: str, each: str = "", listen: str = "127.0.0.1:9811") -> int:
    """Write the pictures into a directory; 1 where one is too large. With `each`, every screen at every width."""
    from tests.support import browser as browsers

    os.makedirs(target, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="nhc-pictures-") as place:
        demo = make(place, 300, 7, listen)
        for _ in range(12):
            step(demo, 3)
            time.sleep(1)
        _listen(demo)
        browser = browsers.start(f"--window-size={SIZE[0]},{SIZE[1]}", "--hide-scrollbars")
        try:
            if each:
                return _each(browser, demo, listen, target)
            sizes = {name: _picture(browser, f"http://{listen}/view/{path}", f"{target}/{name}.png")
                     for name, path in SCREENS.items()}  # fmt: skip
        finally:
            browser.quit()
            demo.actuators.close()
    large = [name for name, size in sizes.items() if size > LARGEST]
    for name, size in sizes.items():
        print(f"{target}/{name}.png: {size} bytes")
    return 1 if large else 0


def _each(browser: Any, demo: Demo, listen: str, target: str) -> int:
    """Every screen, whole, at every width, in the light and in the dark, as who may do everything."""
    from tests.support import browser as browsers

    browser.get(f"http://{listen}/view/login")
    browser.execute_async_script(
        "fetch('/login', {method: 'POST', headers: {'Content-Type': 'application/json'},"
        "body: JSON.stringify({token: arguments[0]})}).then(arguments[1])", demo.token
    )  # fmt: skip
    with urllib.request.urlopen(f"http://{listen}/api/needs", timeout=60) as answer:
        value = json.load(answer)
    with urllib.request.urlopen(f"http://{listen}/api/causes", timeout=60) as answer:
        cause = json.load(answer)["causes"][0]
    first = [*value["approvals"], *value["left"]][0]
    threading.Thread(target=_live, args=(demo,), daemon=True).start()
    for width, height in WIDTHS.items():
        for scheme in ("light", "dark"):
            browsers.scheme(browser, scheme)
            for place, screen in enumerate(EACH):
                path = screen.format(node=first["node"], episode=first["id"], **cause)
                _resize(browser, width, height)
                name = f"{target}/{width}-{scheme}-{place:02}-{screen.partition('?')[0].partition('/')[0]}.png"
                _picture(browser, f"http://{listen}/view/{path}", name, whole=width)
    print(f"{len(os.listdir(target))} pictures in {target}: look at all of them")
    return 0


def _live(demo: Demo) -> None:
    while True:
        step(demo, 0.1)
        time.sleep(2)


def _listen(demo: Demo) -> None:
    import asyncio

    from nhc.console.server import serve

    up = threading.Event()

    def run() -> None:
        asyncio.run(serve(demo.server, lambda _address: up.set()))

    threading.Thread(target=run, daemon=True).start()
    if not up.wait(60):
        raise TimeoutError("the console does not listen")


def _resize(browser: Any, width: int, height: int) -> None:
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def _picture(browser: Any, address: str, path: str, whole: int = 0) -> int:
    from tests.support import browser as browsers

    browser.get(address)
    browsers.until_script(
        browser, "return document.body.dataset.ready && document.querySelector('main').dataset.screen", address
    )
    browsers.until_script(
        browser, "const c = document.querySelector('.map canvas'); return !c || c.dataset.drawn", "the picture"
    )
    if whole:
        height = browser.execute_script("return Math.min(6000, document.documentElement.scrollHeight)")
        _resize(browser, whole, max(500, height))
    browsers.until_script(
        browser, "return [...document.querySelectorAll('.plot .canvas')].every((one) => one.querySelector('canvas'))"
        " && [...document.querySelectorAll('.strip')].every((one) => one.firstChild"
        " || !one.offsetParent || one.getBoundingClientRect().top > innerHeight)", "the plots"
    )  # fmt: skip
    browser.save_screenshot(path)
    return os.path.getsize(path)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
