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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

from kafka_assets.devstack.artifacts import cache_folder

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
SIZE = (1500, 950)
PATIENCE = 60.0
"""Seconds until a page must show what its picture is for."""

LARGEST = 300_000
"""Bytes: a picture of more is not for a repository."""


@dataclass(frozen=True)
class Picture:
    """A page, what it must show, what to click on it first, and what to bring to its top."""

    name: str
    path: str
    shows: Sequence[str]
    click: str | None = None
    top: str | None = None
    never: Sequence[str] = ("Loading", "Not Evaluated", "Unexpected", "An error")


PAGES = (
    Picture("asset", "/assets/orders", shows=["Latest check results", "kafka_offset", "rows_per_second"]),
    Picture("partitions", "/assets/orders?view=partitions", click="orders:0:", shows=["Missing (0)", "records_read"]),
    Picture("plots", "/assets/orders", click="Plots", top="Metadata", shows=["rows_per_second"]),
    Picture("checks", "/assets/orders?view=checks&checkDetail=no_gaps", shows=["stuck_slices", "Passed"]),
    Picture("lineage", "/assets/orders?view=lineage", shows=["100% filled", "order_totals", "shop_report"]),
)


def main() -> None:
    browser = chromium()
    PICTURES.mkdir(parents=True, exist_ok=True)
    with demo() as url:
        wait_until_told(url)
        run_and_judge(url)
        with devtools(browser) as page:
            for one in PAGES:
                take(page, url, one)


def take(page: Page, url: str, wanted: Picture) -> None:
    page.go(url + wanted.path)
    if wanted.click is not None:
        page.wait_for(wanted.click)
        page.click(wanted.click)
    for text in wanted.shows:
        page.wait_for(text)
    if wanted.top is not None:
        page.bring_up(wanted.top)
    time.sleep(4)  # what moves into place comes to rest
    for text in wanted.never:
        page.wait_for(text, gone=True)
    picture = page.picture()
    if len(picture) > LARGEST:
        sys.exit(f"the picture {wanted.name} has {len(picture)} bytes, more than {LARGEST}")
    (PICTURES / f"{wanted.name}.png").write_bytes(picture)
    print(f"docs/pictures/{wanted.name}.png {len(picture) / 1000:.0f} kB")


def chromium() -> Path:
    """Debian's Chromium with what this machine lacks for it, below the user's cache."""
    folder = cache_folder() / "chromium"
    if not folder.exists():
        # With the machine's own apt and its own suite: only what is not installed is fetched.
        planned = run("apt-get", "-s", "install", "--no-install-recommends", "chromium")
        packages = [line.split()[1] for line in planned.splitlines() if line.startswith("Inst ")]
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as aside:
            run("apt-get", "-o", "APT::Sandbox::User=", "download", "-qq", *packages, folder=Path(aside))
            for package in sorted(Path(aside).glob("*.deb")):
                run("dpkg-deb", "-x", str(package), f"{aside}/unpacked")
            # All of it at once: whoever is killed before leaves nothing that looks whole.
            Path(aside, "unpacked").rename(folder)
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


LANDED = ("orders", "order_totals", "customers")
LAUNCH = """mutation($params: ExecutionParams!) { launchPipelineExecution(executionParams: $params) {
  ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""
STATUS = "query($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }"
NODES = """{ assetNodes { assetKey { path } repository { name location { name } }
  partitionStats { numMaterialized numPartitions }
  assetChecksOrError { ... on AssetChecks { checks {
    name executionForLatestMaterialization { status evaluation { success description } } } } } } }"""


def wait_until_told(url: str) -> None:
    """Until Dagster knows of every slice: a check that ran before the last one would be none of the newest data."""
    deadline = time.monotonic() + 240
    while True:
        stats = {name: node["partitionStats"] for name, node in nodes(url).items() if name in LANDED}
        if all(one["numPartitions"] == one["numMaterialized"] > 0 for one in stats.values()):
            return
        if time.monotonic() > deadline:
            sys.exit(f"Dagster was not told of all slices: {stats}")
        time.sleep(2)


def run_and_judge(url: str) -> None:
    """Materialize what has no slices and run all checks, as the pages' buttons do; each must have passed."""
    report = [{"path": ["shop_report"]}]
    launch(url, assetSelection=report, assetCheckSelection=[])
    for name, node in nodes(url).items():
        checks = [{"assetKey": {"path": [name]}, "name": one["name"]} for one in checks_of(node)]
        if checks:
            launch(url, assetSelection=[], assetCheckSelection=checks)
    for name, node in nodes(url).items():
        for one in checks_of(node):
            answer = one["executionForLatestMaterialization"]
            if answer is None or answer["status"] != "SUCCEEDED":
                sys.exit(f"the check {one['name']} of {name} did not pass: {answer}")


def launch(url: str, **selection: Any) -> None:
    """A run of these assets or checks, to its end."""
    repository = nodes(url)["orders"]["repository"]
    selector = {
        "repositoryName": repository["name"],
        "repositoryLocationName": repository["location"]["name"],
        "pipelineName": "__ASSET_JOB",
        **selection,
    }
    launched = ask(
        url,
        LAUNCH,
        params={
            "mode": "default",
            "executionMetadata": {"tags": []},
            "runConfigData": "{}",
            "selector": selector,
        },
    )["launchPipelineExecution"]
    if "run" not in launched:
        sys.exit(f"Dagster does not launch {selection}: {launched.get('message')}")
    deadline = time.monotonic() + 240
    while (status := ask(url, STATUS, id=launched["run"]["runId"])["runOrError"]["status"]) != "SUCCESS":
        if status in {"FAILURE", "CANCELED"} or time.monotonic() > deadline:
            sys.exit(f"the run of {selection} did not succeed: it is {status}")
        time.sleep(1)


def nodes(url: str) -> dict[str, Any]:
    """Every asset of the code location by its name."""
    return {"/".join(one["assetKey"]["path"]): one for one in ask(url, NODES)["assetNodes"]}


def checks_of(node: Any) -> list[Any]:
    return node["assetChecksOrError"].get("checks", [])


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


_INNERMOST = (
    "[...document.querySelectorAll('body *')].filter(one => one.children.length < 3"
    " && one.innerText?.trim().startsWith(%s)).pop()"
)


class Page:
    """What the pictures need of the DevTools protocol."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket, self._number = socket, 0

    def go(self, url: str) -> None:
        self._call("Page.navigate", url=url)

    def wait_for(self, text: str, *, gone: bool = False) -> None:
        """Wait until the page shows a text, or no longer does."""
        deadline = time.monotonic() + PATIENCE
        while self._evaluate(f"!!document.body && document.body.innerText.includes({json.dumps(text)})") is gone:
            if time.monotonic() > deadline:
                failed = Path(tempfile.gettempdir(), "failed.png")
                failed.write_bytes(self.picture())
                sys.exit(f"the page {'still shows' if gone else 'does not show'} {text!r}: see {failed}")
            time.sleep(0.5)

    def click(self, text: str) -> None:
        """Click on the innermost element whose text begins so."""
        self._evaluate(f"{_INNERMOST % json.dumps(text)}?.click()")

    def bring_up(self, text: str) -> None:
        """Scroll so that this element stands at the top."""
        self._evaluate(f"{_INNERMOST % json.dumps(text)}?.scrollIntoView({{block: 'start'}})")

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
