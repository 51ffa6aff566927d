"""A page in headless Chromium, driven through the pipes that --remote-debugging-pipe opens: no package is needed."""
import base64
import itertools
import json
import os
import pathlib
import select
import shutil
import subprocess
import tempfile
import time

CHROMIUM = shutil.which("chromium")


class Browser:
    """One tab. Use it as a context manager."""

    def __init__(self):
        self.profile = tempfile.mkdtemp(prefix="kvsim-chromium-")
        self.numbers, self.buffer = itertools.count(1), b""
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()

        def wire():
            os.dup2(os.dup(theirs_in), 3)
            os.dup2(os.dup(theirs_out), 4)

        # Descriptors 3 and 4 are Chromium's ends; the copies keep the pipes from closing while they move there.
        self.process = subprocess.Popen(
            [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
             f"--user-data-dir={self.profile}", "--remote-debugging-pipe", "about:blank"],
            preexec_fn=wire, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(theirs_in)
        os.close(theirs_out)
        self.read_end, self.write_end, self.session, self.problems = ours_in, ours_out, None, []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.read_end)
        os.close(self.write_end)
        shutil.rmtree(self.profile, ignore_errors=True)

    def message(self, seconds):
        end = time.monotonic() + seconds
        while b"\0" not in self.buffer:
            if not select.select([self.read_end], [], [], max(0, end - time.monotonic()))[0]:
                raise TimeoutError("Chromium does not answer")
            piece = os.read(self.read_end, 1 << 20)
            if not piece:
                raise RuntimeError("Chromium has ended")
            self.buffer += piece
        text, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(text)

    def send(self, method, **params):
        number = next(self.numbers)
        order = {"id": number, "method": method, "params": params, **({"sessionId": self.session} if self.session else {})}
        os.write(self.write_end, json.dumps(order).encode() + b"\0")
        while True:
            said = self.message(120)
            if said.get("id") == number:
                if "error" in said:
                    raise RuntimeError(f"{method}: {said['error']}")
                return said["result"]
            if said.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.problems.append(said["params"])
            if said.get("method") == "Network.requestWillBeSent":
                address = said["params"]["request"]["url"]
                self.problems += [] if address.startswith(("file:", "data:", "about:")) else [address]

    def run(self, script):
        """What a script returns; it may await."""
        said = self.send("Runtime.evaluate", expression=f"(async () => {{ {script} }})()", awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in said:
            raise RuntimeError(json.dumps(said["exceptionDetails"])[:2000])
        return said["result"].get("value")

    def size(self, width, height=900, dark=False):
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def open(self, path, fragment="", ready="document.documentElement.dataset.ready"):
        """Opens a page and waits until it is drawn."""
        self.send("Page.navigate", url="about:blank")
        self.send("Page.navigate", url=pathlib.Path(path).resolve().as_uri() + fragment)
        end = time.monotonic() + 60
        while not self.run(f"return document.readyState === 'complete' && Boolean({ready})"):
            if time.monotonic() > end:
                raise TimeoutError(f"{path} is never drawn: {self.problems}")
            time.sleep(0.02)

    def key(self, key):
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode={"Enter": 13}.get(key, 0),
                      text="\r" if key == "Enter" and kind == "keyDown" else "")

    def mouse(self, kind, x, y, **more):
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x, y):
        self.mouse("mouseMoved", x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", clickCount=1)

    def picture(self):
        """What is on the screen, as PNG."""
        return base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"])

    def screenshot(self, path):
        pathlib.Path(path).write_bytes(self.picture())
