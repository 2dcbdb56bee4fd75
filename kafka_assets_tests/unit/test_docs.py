"""README and docs/ say what is so: their code compiles, their SQL runs, and every name in them exists."""

from __future__ import annotations

import re
import sqlite3
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer

from kafka_assets import errors
from kafka_assets.assets.decorator import kafka_asset
from kafka_assets.broker.java_names import JAVA_NAMES
from kafka_assets.cli import app
from kafka_assets.settings import PREFIX, Settings
from kafka_assets.streams import Stream

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SETTINGS = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")

page = pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)


def blocks(path: Path, language: str) -> list[str]:
    found = re.findall(
        rf"^( *)```{language}\n(.*?)^\1```$", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    return [text for _, text in found]


def headings(path: Path) -> set[str]:
    """The anchors of a page, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@page
def test_its_python_compiles(page: Path) -> None:
    for number, block in enumerate(blocks(page, "python")):
        compile(block, f"{page.name} block {number}", "exec")


@page
def test_its_toml_is_toml(page: Path) -> None:
    for block in blocks(page, "toml"):
        assert set(tomllib.loads(block)) <= set(Settings.model_fields)


@page
def test_its_sql_runs_on_a_ledger(page: Path, tmp_path: Path, empty_ledger: Path) -> None:
    for number, block in enumerate(blocks(page, "sql")):
        copy = tmp_path / f"{number}.db"
        copy.write_bytes(empty_ledger.read_bytes())
        with sqlite3.connect(copy) as connection:
            connection.execute("create table payments (id integer)")
            connection.executescript(block)
        connection.close()


@page
def test_its_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        led = (page.parent / path).resolve() if path else page
        assert led.exists(), target
        assert not anchor or anchor in headings(led), target


@page
def test_its_settings_exist(page: Path) -> None:
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "kafka_assets").rglob("*.py"))
    known = {PREFIX + name.upper() for name in Settings.model_fields}
    for name in set(re.findall(rf"\b{PREFIX}[A-Z_]+", page.read_text(encoding="utf-8"))):
        named_in_code = f'"{name}"' in code or f'{{PREFIX}}{name.removeprefix(PREFIX)}"' in code
        assert name in known or named_in_code or name.startswith(f"{PREFIX}KAFKA__"), name


@page
def test_its_commands_and_options_exist(page: Path) -> None:
    root: Any = typer.main.get_command(app)
    for words in re.findall(r"\bkafka-assets((?: [a-z-]+)+)", page.read_text(encoding="utf-8")):
        command, left = root, words.split()
        # Not by type: typer may carry a click of its own.
        while left and hasattr(command, "commands") and not left[0].startswith("--"):
            assert left[0] in command.commands, f"kafka-assets{words}"
            command = command.commands[left.pop(0)]
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in left if word.startswith("--")} <= known, f"kafka-assets{words}"


@page
def test_its_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    named = set(
        re.findall(r"(?:^|[`$ ])make ([a-z-]+)(?=[ `\n])", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    )
    assert named <= targets


@page
def test_it_names_no_path_of_a_machine_that_it_was_written_on(page: Path) -> None:
    assert not re.search(
        r"/(tmp|work|root|home)/|https?://(?!127\.0\.0\.1|github\.com)", page.read_text(encoding="utf-8")
    )


def test_every_setting_is_explained() -> None:
    named = {name for name in Settings.model_fields if name not in ("project", "kafka")}
    assert {name for name in named if f"`{PREFIX}{name.upper()}` | `{name}`" in SETTINGS} == named


def test_every_attribute_of_a_stream_is_explained_and_no_other() -> None:
    section = SETTINGS.partition("## Attributes of a stream")[2].partition("\n### ")[0]
    explained = set(re.findall(r"^\| `(\w+)` \|", section, flags=re.MULTILINE))
    assert explained == {field.alias or name for name, field in Stream.model_fields.items()}


def test_the_table_of_javas_names_is_the_codes() -> None:
    section = SETTINGS.partition("## Java's names")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(.+?)` \| (.+) \|$", section, flags=re.MULTILINE)
    assert rows == list(JAVA_NAMES.items())


def test_every_error_that_is_named_exists() -> None:
    text = (ROOT / "docs" / "failures.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)+|Fenced|Truncated)`", text))
    assert named
    assert {name for name in named if not hasattr(errors, name)} == set()


def test_the_readmes_stream_can_be_declared() -> None:
    [block] = blocks(ROOT / "README.md", "python")
    namespace: dict[str, object] = {}
    exec(compile(block, "<README>", "exec"), namespace)
    assert namespace["kafka_asset"] is kafka_asset
