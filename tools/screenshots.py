"""Pictures of Dagster's pages for docs/: the demo is run, and a headless Chromium looks at it.

`make screenshots`. The browser is unpacked from Debian's own packages into the user's cache, and nothing
is installed on the machine. Pages are driven by the DevTools protocol: some of what they show wants a click.
"""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

from kafka_assets.devstack.artifacts import cache_folder

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
SIZE = (1500, 950)
PATIENCE = 60.0
"""Seconds until a page must show what its picture is for."""

# name, path, what to click before the picture, what the page must show
PAGES = [
    ("asset", "/assets/orders", None, "rows_per_second"),
    ("partitions", "/assets/orders?view=partitions", "orders:0:", "records_read"),
    ("plots", "/assets/orders?view=overview", "Plots", "records_read"),
    ("checks", "/assets/orders?view=checks", None, "no_gaps"),
    ("lineage", "/assets/orders?view=lineage", None, "orders"),
]


def main() -> None:
    browser = chromium()
    PICTURES.mkdir(parents=True, exist_ok=True)
    with demo() as url, devtools(browser) as page:
        run_checks(url)
        for name, path, click, wanted in PAGES:
            page.go(url + path)
            page.wait_for(wanted if click is None else click)
            if click is not None:
                page.click(click)
                page.wait_for(wanted)
            time.sleep(3)  # what moves into place comes to rest
            (PICTURES / f"{name}.png").write_bytes(page.picture())
            print(f"docs/pictures/{name}.png")


def chromium() -> Path:
    """Debian's Chromium with what this machine lacks for it, below the user's cache."""
    folder = cache_folder() / "chromium"
    if not (folder / "usr/lib/chromium/chromium").exists():
        # With the machine's own apt and its own suite: only what is not installed is fetched.
        planned = run("apt-get", "-s", "install", "--no-install-recommends", "chromium")
        packages = [line.split()[1] for line in planned.splitlines() if line.startswith("Inst ")]
        with tempfile.TemporaryDirectory() as downloads:
            run("apt-get", "-o", "APT::Sandbox::User=", "download", "-qq", *packages, folder=Path(downloads))
            for package in sorted(Path(downloads).glob("*.deb")):
                run("dpkg-deb", "-x", str(package), str(folder))
    return folder


def run(*command: str, folder: Path | None = None) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command[:3])} failed: {done.stderr.strip()[-500:]}\n(`apt-get update` may help)")
    return done.stdout


@contextmanager
def demo() -> Iterator[str]:
    """The demo with its UI up; ended as a user ends it."""
    command = [str(ROOT / ".venv/bin/kafka-assets"), "demo", "--records", "100000"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert running.stdout is not None
    try:
        for line in running.stdout:
            if found := re.search(r"Look around at (http://\S+);", line):
                yield found[1]
                return
        sys.exit("the demo did not come up; run `kafka-assets demo` to see why")
    finally:
        running.send_signal(signal.SIGINT)
        running.wait(timeout=120)


def run_checks(url: str) -> None:
    """Ask Dagster to run the asset's checks, as its page's button does, and wait until each has an answer."""
    run_id = ask(
        url,
        LAUNCH_CHECKS,
        params={
            "mode": "default",
            "executionMetadata": {"tags": []},
            "runConfigData": "{}",
            "selector": {
                **location(url),
                "pipelineName": "__ASSET_JOB",
                "assetSelection": [],
                "assetCheckSelection": [{"assetKey": {"path": ["orders"]}, "name": name} for name in checks(url)],
            },
        },
    )["launchPipelineExecution"]["run"]["runId"]
    deadline = time.monotonic() + 180
    while ask(url, STATUS, id=run_id)["runOrError"]["status"] not in {"SUCCESS", "FAILURE"}:
        if time.monotonic() > deadline:
            sys.exit("the checks did not end")
        time.sleep(1)


LAUNCH_CHECKS = """mutation($params: ExecutionParams!) { launchPipelineExecution(executionParams: $params) {
  ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""
STATUS = "query($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }"
CHECKS = """query { assetNodes(assetKeys: [{path: ["orders"]}]) { repository { name location { name } }
  assetChecksOrError { ... on AssetChecks { checks { name } } } } }"""


def checks(url: str) -> list[str]:
    return [one["name"] for one in ask(url, CHECKS)["assetNodes"][0]["assetChecksOrError"]["checks"]]


def location(url: str) -> dict[str, str]:
    found = ask(url, CHECKS)["assetNodes"][0]["repository"]
    return {"repositoryName": found["name"], "repositoryLocationName": found["location"]["name"]}


def ask(url: str, query: str, **variables: Any) -> Any:
    body = json.dumps({"query": query, "variables": variables}).encode()
    request = urllib.request.Request(f"{url}/graphql", data=body, headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        found = json.load(answer)
    if "errors" in found:
        sys.exit(f"Dagster refuses: {found['errors'][0]['message']}")
    return found["data"]


@contextmanager
def devtools(folder: Path) -> Iterator[Page]:
    """A headless browser with one page."""
    libraries = folder / "usr/lib/x86_64-linux-gnu"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = subprocess.Popen(
            [
                str(folder / "usr/lib/chromium/chromium"),
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--hide-scrollbars",
                f"--window-size={SIZE[0]},{SIZE[1]}",
                f"--user-data-dir={profile}",
                "--remote-debugging-port=0",
                "about:blank",
            ],
            env={**os.environ, "LD_LIBRARY_PATH": f"{libraries}:{libraries}/pulseaudio:{folder}/usr/lib/chromium"},
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert browser.stderr is not None
            port = next(found[1] for line in browser.stderr if (found := re.search(r"ws://127.0.0.1:(\d+)/", line)))
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=10) as answer:
                target = next(one for one in json.load(answer) if one["type"] == "page")
            with connect(target["webSocketDebuggerUrl"], max_size=None) as socket:
                yield Page(socket)
        finally:
            browser.terminate()
            browser.wait(timeout=30)


class Page:
    """What the pictures need of the DevTools protocol."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket, self._number = socket, 0

    def go(self, url: str) -> None:
        self._call("Page.navigate", url=url)

    def wait_for(self, text: str) -> None:
        """Wait until the page shows a text."""
        deadline = time.monotonic() + PATIENCE
        while not self._evaluate(f"document.body && document.body.innerText.includes({json.dumps(text)})"):
            if time.monotonic() > deadline:
                (PICTURES / "failed.png").write_bytes(self.picture())
                sys.exit(f"the page does not show {text!r}: see docs/pictures/failed.png")
            time.sleep(0.5)

    def click(self, text: str) -> None:
        """Click on the innermost element whose text begins so."""
        self._evaluate(
            f"[...document.querySelectorAll('*')].filter(one => one.innerText?.startsWith({json.dumps(text)}))"
            ".pop()?.click()"
        )

    def picture(self) -> bytes:
        return base64.b64decode(self._call("Page.captureScreenshot", format="png")["data"])

    def _evaluate(self, script: str) -> Any:
        return self._call("Runtime.evaluate", expression=script)["result"].get("value")

    def _call(self, method: str, **params: Any) -> Any:
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": params}))
        while (answer := json.loads(self._socket.recv(timeout=PATIENCE))).get("id") != self._number:
            pass  # events of the page
        if "error" in answer:
            sys.exit(f"the browser refuses {method}: {answer['error']['message']}")
        return answer["result"]


if __name__ == "__main__":
    main()
