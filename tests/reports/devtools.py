"""A headless Chromium, driven over its DevTools pipe with nothing but the standard library."""
import fcntl
import json
import os
import select
import subprocess
import tempfile
import time


class Browser:
    def __init__(self, chromium, timeout_s=60):
        self.timeout_s = timeout_s
        self.profile = tempfile.TemporaryDirectory(prefix="shardscope-browser-", ignore_cleanup_errors=True)
        ours_in, theirs_out = os.pipe()
        theirs_in, ours_out = os.pipe()
        # Chromium reads commands on descriptor 3 and answers on 4; high copies first, so that neither hits the other.
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 20) for fd in (theirs_in, theirs_out)]

        def place():
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        flags = ["--headless=new", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu", "--disable-dev-shm-usage",
                 "--hide-scrollbars", f"--user-data-dir={self.profile.name}"]
        if os.geteuid() == 0:
            flags.append("--no-sandbox")
        self.process = subprocess.Popen([chromium, *flags, "about:blank"], preexec_fn=place, pass_fds=(3, 4),
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for fd in (*high, theirs_in, theirs_out):
            os.close(fd)
        self.fd_in, self.fd_out = ours_in, ours_out
        self.buffer, self.next_id, self.events = b"", 0, []

    def close(self):
        try:
            self.call("Browser.close")
        except (OSError, TimeoutError, RuntimeError):
            pass
        os.close(self.fd_in)
        os.close(self.fd_out)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.profile.cleanup()

    def read(self, deadline):
        while b"\0" not in self.buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.fd_in], [], [], left)[0]:
                raise TimeoutError(f"the browser did not answer within {self.timeout_s} s")
            piece = os.read(self.fd_in, 1 << 16)
            if not piece:
                raise RuntimeError("the browser ended")
            self.buffer += piece
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, session=None, **params):
        self.next_id += 1
        message = {"id": self.next_id, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self.fd_out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + self.timeout_s
        while True:
            answer = self.read(deadline)
            if answer.get("id") == self.next_id:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer.get("result", {})
            if "method" in answer:
                self.events.append(answer)


class Tab:
    """One page; collects what goes wrong in it: console errors, exceptions, requests that leave the file."""

    def __init__(self, browser, width=1400, height=900, dark=False):
        self.browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.target = target
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")
        self.call("Page.bringToFront")
        self.size(width, height)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def size(self, width, height=900):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)

    def run(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description", details["text"]) + " in " + expression)
        return answer["result"].get("value")

    def wait_for(self, expression, timeout_s=120):   # a safety net, on a machine that may be busy
        deadline = time.monotonic() + timeout_s
        while not self.run(f"Boolean({expression})"):
            if time.monotonic() > deadline:
                raise TimeoutError("never true: " + expression)
            time.sleep(0.02)

    def open(self, path, fragment=""):
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url="file://" + os.path.abspath(path) + fragment)
        self.wait_for("location.protocol === 'file:' && document.readyState === 'complete' && document.getElementById('footer')?.textContent.length > 0")

    def reload(self):
        self.run("window.stale = true")
        self.call("Page.reload")
        self.wait_for("!window.stale && document.readyState === 'complete' && document.getElementById('footer')?.textContent.length > 0")

    def key(self, key):
        text = {"Enter": "\r", "+": "+"}.get(key)
        params = {"key": key, "code": key, "windowsVirtualKeyCode": {"Enter": 13, "Tab": 9}.get(key, ord(key[0]))}
        self.call("Input.dispatchKeyEvent", type="keyDown", **params, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **params)

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def wrongs(self):
        self.run("0")   # drains what has been sent so far
        found = []
        for event in self.browser.events:
            if event.get("sessionId") != self.session:
                continue
            method, params = event["method"], event["params"]
            if method == "Runtime.exceptionThrown":
                found.append("exception: " + json.dumps(params["exceptionDetails"].get("exception", params["exceptionDetails"]).get("description", "")))
            elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
                found.append("console: " + json.dumps(params["args"]))
            elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                found.append("log: " + params["entry"]["text"])
            elif method == "Network.requestWillBeSent" and not params["request"]["url"].startswith(("file:", "data:", "blob:", "about:")):
                found.append("request: " + params["request"]["url"][:200])
        return found

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)
