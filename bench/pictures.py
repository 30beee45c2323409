"""The pictures of docs/console.md, taken of the demonstration: `make pictures`. Needs chromium and chromium-driver."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time

from nhc.lab.demo.play import Demo, make, step

SCREENS = {"needs": "needs", "map": "map?by=rack", "problems": "problems"}
"""Pictures by their names, each of one screen."""
SIZE = (1180, 720)
LARGEST = 100_000
"""Bytes of a picture at most."""


def main(target: str, listen: str = "127.0.0.1:9811") -> int:
    """Write the pictures into a directory; 1 where one is too large."""
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
            sizes = {name: _picture(browser, f"http://{listen}/view/{path}", f"{target}/{name}.png")
                     for name, path in SCREENS.items()}  # fmt: skip
        finally:
            browser.quit()
            demo.controller.actuators.close()
    large = [name for name, size in sizes.items() if size > LARGEST]
    for name, size in sizes.items():
        print(f"{target}/{name}.png: {size} bytes")
    return 1 if large else 0


def _listen(demo: Demo) -> None:
    import asyncio

    from nhc.console.server import serve

    up = threading.Event()

    def run() -> None:
        asyncio.run(serve(demo.server, lambda _address: up.set()))

    threading.Thread(target=run, daemon=True).start()
    if not up.wait(60):
        raise TimeoutError("the console does not listen")


def _picture(browser: object, address: str, path: str) -> int:
    from tests.support import browser as browsers

    browser.get(address)  # type: ignore[attr-defined]
    browsers.until_script(
        browser, "return document.body.dataset.ready && document.querySelector('main').dataset.screen", address
    )
    browsers.until_script(
        browser, "const c = document.querySelector('canvas'); return !c || c.dataset.drawn", "the picture"
    )
    browser.save_screenshot(path)  # type: ignore[attr-defined]
    return os.path.getsize(path)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
