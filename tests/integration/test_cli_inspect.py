"""`tune inspect` as it is called: words, JSON, a page, a sample, and what it refuses."""

import json
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import orjson
import pytest

from tests.integration.study_desk import Desk
from tuner.cli import run
from workloads import Inspection

SAMPLE = Path(__file__).parents[2] / "workloads" / "samples" / "api_traffic.jsonl"
HOSTILE = "</style><script>alert(1)</script><img src=x onerror=alert(1)>"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """Traffic whose labels are markup, behind a line that is none."""
    path = tmp_path / "<b>traffic.jsonl"
    rows: list[dict[str, object]] = [
        {"route": f"{HOSTILE}{number % 2}", "body": {"prompt": "secret words", "model": HOSTILE, "max_tokens": 5}}
        for number in range(20)
    ]
    path.write_bytes(b"\n".join([*map(orjson.dumps, rows), b'{"%s": 1}' % HOSTILE.encode(), b""]))
    return path


class Elements(HTMLParser):
    """Tags with their attributes, and whether they are closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read_page(path: Path) -> Elements:
    elements = Elements()
    elements.feed(path.read_text(encoding="utf-8"))
    elements.close()
    assert elements.open == []
    return elements


def test_words_say_what_json_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", str(SAMPLE), "--profile-by", "auto"]) == 0
    words = capsys.readouterr().out
    assert run(["inspect", str(SAMPLE), "--profile-by", "auto", "--json"]) == 0
    found = Inspection.model_validate_json(capsys.readouterr().out)
    assert len(found.profiles) == 3
    # A replay replaces the model's name on purpose, so that is nothing to be alarmed about.
    assert "model name" in words
    assert "not sent" not in words
    for name, traffic in found.profiles.items():
        assert f"profile {name}: 33% of the requests" in words
        assert f"{traffic.requests}, none with a session" in words
        assert "; ".join(traffic.because) in words
    assert found.whole.arrivals is not None
    for each in found.whole.prefix_sharing.hit_rates:
        assert f"{each.kv_block_size}: {each.hit_rate:.1%}" in words


def test_the_page_is_whole_in_itself_and_escapes_what_was_recorded(hostile: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert run(["inspect", str(hostile), "--html", str(page), "--max-bad-share", "0.1"]) == 0
    elements = read_page(page)
    names = {tag for tag, _ in elements.tags}
    assert names & {"script", "img", "link", "iframe", "b", "a", "object", "form"} == set()
    loaded = {name for _, attributes in elements.tags for name in attributes} & {"src", "href", "srcset", "onerror"}
    assert loaded == set()
    text = page.read_text(encoding="utf-8")
    assert "url(" not in text
    assert "@import" not in text
    assert HOSTILE in elements.text
    assert "secret words" not in text


def test_the_page_reads_on_a_telephone_and_in_the_dark(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert run(["inspect", str(SAMPLE), "--html", str(page)]) == 0
    metas = {
        attributes.get("name"): attributes.get("content") for tag, attributes in read_page(page).tags if tag == "meta"
    }
    assert metas["viewport"] == "width=device-width, initial-scale=1"
    assert metas["color-scheme"] == "light dark"
    text = page.read_text(encoding="utf-8")
    assert "prefers-color-scheme: dark" in text
    assert "Profile support" in text


def test_a_sample_is_inspected_as_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", str(SAMPLE), "--sample", "90", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert abs(document["whole"]["requests"] - 90) <= 3
    assert set(document["profiles"]) == {"support", "story", "code"}
    assert "of 240 requests" in document["notes"][-1]


@pytest.mark.slow
def test_a_pipe_is_inspected_and_sampled() -> None:
    for more in ([], ["--sample", "90"]):
        command = [sys.executable, "-P", "-m", "tuner", "inspect", "/dev/stdin", "--json", *more]
        with SAMPLE.open("rb") as file, subprocess.Popen(["cat"], stdin=file, stdout=subprocess.PIPE) as piped:
            done = subprocess.run(command, stdin=piped.stdout, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads(done.stdout)["format"] == "native"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--html", "/nowhere/page.html"], "--html /nowhere/page.html"),
        (["--sample", "1"], "a sample of 1 requests is too small"),
        (["--profile-by", "colour"], "auto or tag:KEY"),
        (["--profile-by", "tag:colour"], 'no request has the tag "colour"; the tags are: app'),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_sentence(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["inspect", str(SAMPLE), *words]) == 2
    printed = capsys.readouterr()
    assert complaint in printed.err
    assert printed.err.count("\n") == 1


def test_a_study_of_a_sample_says_how_it_differs(
    desk: Desk, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*desk.options("s", tmp_path / "runs"), "--dry-run", "--sample", "20", "--profile-by", "none"]) == 0
    printed = capsys.readouterr().out
    assert "20 requests" in printed
    assert "a sample of 20 of 24 requests" in printed
    assert run([*desk.options("s", tmp_path / "runs"), "--dry-run", "--sample", "1"]) == 2
    assert "--sample" in capsys.readouterr().err
