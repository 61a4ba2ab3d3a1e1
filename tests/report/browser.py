"""A real browser, driven through chromedriver's own protocol (W3C WebDriver over HTTP): no package needed."""

import base64
import json
import shutil
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars",
)  # fmt: skip


def lacking():
    """What is not installed, or nothing."""
    programs = {"chromium": ("chromium", "chromium-browser", "google-chrome"), "chromedriver": ("chromedriver",)}
    return [name for name, spellings in programs.items() if not any(map(shutil.which, spellings))]


class Browser:
    """One window of a headless Chromium."""

    def __enter__(self):
        self._profile = tempfile.mkdtemp(prefix="arb-browser-")
        self._driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True)
        self._address = f"http://127.0.0.1:{self._port()}"
        binary = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
        options = {"binary": binary, "args": [*FLAGS, f"--user-data-dir={self._profile}"]}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        made = self._send("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._address += f"/session/{made['sessionId']}"
        return self

    def __exit__(self, *_):
        try:
            self._send("DELETE", "")
        finally:
            self._driver.terminate()
            self._driver.wait(timeout=30)
            self._driver.stdout.close()
            shutil.rmtree(self._profile, ignore_errors=True)

    def _port(self):
        for line in self._driver.stdout:
            if "started successfully on port" in line:
                return int(line.rstrip(".\n").rsplit(" ", 1)[1])
        raise RuntimeError("chromedriver did not start")

    def _send(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self._address + path, data, {"Content-Type": "application/json"}, method=method
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.loads(answer.read())["value"]

    def open(self, path):
        self._send("POST", "/url", {"url": Path(path).resolve().as_uri()})

    def run(self, script, *arguments):
        """The value that a piece of JavaScript returns."""
        return self._send("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def until(self, script, *arguments):
        """Wait until a piece of JavaScript returns something true, and return it."""
        end = time.monotonic() + 30
        while not (found := self.run(script, *arguments)):
            if time.monotonic() > end:
                raise AssertionError(f"never came true: {script}")
            time.sleep(0.05)
        return found

    def size(self, width, height):
        """The size of the page, whatever the window; the page is laid out as on a device of that width."""
        self.devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    def prefer(self, scheme):
        self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def devtools(self, command, **parameters):
        return self._send("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def hover(self, x, y):
        self.devtools("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            self.devtools("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def complaints(self):
        """Everything the page wrote to the console since the last call."""
        return [entry["message"] for entry in self._send("POST", "/se/log", {"type": "browser"})]

    def screenshot(self, path):
        whole = self.devtools("Page.captureScreenshot", captureBeyondViewport=True)
        Path(path).write_bytes(base64.b64decode(whole["data"]))
