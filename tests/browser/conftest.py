"""A real Chromium, a study whose traffic tries to become script, and a made-up study of 200 trials."""

import fcntl
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.browser.made_study import make_study
from tests.integration.conftest import finished  # noqa: F401 - a fixture: the study that the integration tests run
from tests.integration.study_desk import Desk, FinishedStudy, line, run_tune, write_workload
from tuner.report import write_report
from tuner.store import Store

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
INSTALL = "no Chromium on this host; install it with `apt-get install chromium`"
PLANTED = "<img src=x onerror='window.planted=1'></script><script>window.planted=1</script>"


@dataclass
class Opened:
    """A page and what it did that it should not."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The host's own Chromium, nothing downloaded; its event loop must end before tests that have one of their own."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


Opener = Callable[..., Opened]


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Opener]:
    """Opens a file or an address and listens to the console and the network."""
    contexts: list[BrowserContext] = []

    def opened(address: str | Path, *, width: int = 1200, scheme: str = "light") -> Opened:
        context = browser.new_context(
            viewport={"width": width, "height": 844}, color_scheme="dark" if scheme == "dark" else "light"
        )
        contexts.append(context)
        page = context.new_page()
        found = Opened(page)
        page.on("console", lambda m: found.complaints.append(m.text) if m.type in {"error", "warning"} else None)
        page.on("pageerror", lambda error: found.complaints.append(str(error)))
        page.on("request", lambda request: found.requests.append(request.url))
        page.goto(address.as_uri() if isinstance(address, Path) else address)
        return found

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Store:
    """A study of 200 trials with its report: two profiles at four loads, one named so that it may become script."""
    with _once(tmp_path_factory, worker_id, "large-study") as (shared, made):
        if not made.exists():
            write_report(make_study(shared, profiles=("code", PLANTED), trials=200, failure=PLANTED), images=True)
            made.touch()
    return Store.open(shared, "made")


@pytest.fixture(scope="session")
def planted(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> FinishedStudy:
    """A study on simulated engines whose routes and prompts try to become script."""
    with _once(tmp_path_factory, worker_id, "planted-study") as (shared, result):
        if not result.exists():
            _run(shared, result)
    return FinishedStudy.model_validate_json(result.read_bytes())


@contextmanager
def _once(factory: pytest.TempPathFactory, worker_id: str, name: str) -> Iterator[tuple[Path, Path]]:
    """A folder that all test processes share, with a file that says that its content is complete."""
    root = factory.getbasetemp()
    shared = (root if worker_id == "master" else root.parent) / name
    shared.mkdir(exist_ok=True)
    with (shared / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield shared, shared / "complete"


def _run(directory: Path, result: Path) -> None:
    (directory / "desk").mkdir(exist_ok=True)
    desk, out = Desk(directory / "desk").lay_out(), directory / "runs"
    routes = ("code", f"chat {PLANTED}")
    write_workload(desk.workload, [line(n, route, prompt=f"{PLANTED} {n}") for n in range(8) for route in routes])
    ran = run_tune(*desk.options("planted", out, trials="2"), timeout_s=600)
    document = {"out": str(out), "study": "planted", "desk": str(desk.directory), "returncode": ran.returncode}
    result.write_text(json.dumps({**document, "stdout": ran.stdout, "stderr": ran.stderr}), encoding="utf-8")
