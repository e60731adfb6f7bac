"""A headless Chromium that tests drive over the DevTools protocol, through a pair of pipes."""

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DOMAINS = ("Page", "Runtime", "Log", "Network", "Accessibility")
WAIT_S = 60


class Browser:
    """One tab; `events` are those since the last page was opened."""

    def __init__(self, profile: Path) -> None:
        own_read, self._write = os.pipe()
        self._read, own_write = os.pipe()
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"]
        # Chromium reads its commands from descriptor 3 and writes to 4.
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{own_read} 4>&{own_write}', "-", str(CHROMIUM), *flags,
             f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(own_read, own_write), stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(own_read)
        os.close(own_write)
        self._sent, self._rest, self._session = 0, b"", {}
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        found = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = {"sessionId": found["sessionId"]}
        for domain in DOMAINS:
            self.call(f"{domain}.enable")

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(WAIT_S)
        os.close(self._write)
        os.close(self._read)

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = os.read(self._read, 1 << 20)
            assert part, "Chromium ended"
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(message))

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._sent += 1
        message = {"id": self._sent, "method": method, "params": parameters} | self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while (answer := self._message()).get("id") != self._sent:
            self.events.append(answer)
        assert "error" not in answer, answer
        return dict(answer["result"])

    def open(self, page: Path) -> None:
        self.events.clear()
        self.call("Page.navigate", url=page.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._message())

    def run(self, script: str) -> Any:
        found = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait_for(self, script: str) -> None:
        end = time.monotonic() + WAIT_S
        while not self.run(script):
            assert time.monotonic() < end, script
            time.sleep(0.05)

    def complaints(self) -> list[str]:
        """Errors and output of the console, and refusals of the content policy."""
        noisy = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        self.run("0")
        return [json.dumps(one["params"]) for one in self.events if one["method"] in noisy]

    def requests(self) -> list[str]:
        return [
            one["params"]["request"]["url"]
            for one in self.events
            if one["method"] == "Network.requestWillBeSent"
        ]

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        for kind, (x, y) in (
            ("Moved", start),
            ("Pressed", start),
            ("Moved", end),
            ("Released", end),
        ):
            self.call(
                "Input.dispatchMouseEvent", type=f"mouse{kind}", x=x, y=y, button="left",
                clickCount=1,
            )  # fmt: skip

    def press(self, key: str) -> None:
        text = {"Enter": "\r", " ": " "}.get(key)
        down = {"text": text} if text else {}
        codes = {"Tab": 9, "Enter": 13, " ": 32}
        for kind, more in (("keyDown", down), ("keyUp", {})):
            self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=codes[key],
                **more,
            )  # fmt: skip

    def size(self, width: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1,
            mobile=width < 500,
        )  # fmt: skip
