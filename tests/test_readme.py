"""What README says runs: its blocks marked `run`, its make targets, its links, its task of a manifest.

A fence such as "```python run data slow" runs the block; `data` skips it where the published files are out of reach, `slow` leaves it to `make test-all`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = [(m[2], m[3].split(), textwrap.dedent(m[4])) for m in re.finditer(r"^( *)```(\w+)([^\n]*)\n(.*?)^\1```$", README, re.MULTILINE | re.DOTALL)]


def cases() -> list[object]:
    found = []
    for number, (language, words, code) in enumerate(BLOCKS):
        if "run" in words:
            marks = [pytest.mark.slow] if "slow" in words else []
            found.append(pytest.param(language, words, code, id=f"{number}-{language}", marks=marks))
    return found


def test_the_blocks_are_found():
    assert len(cases()) >= 8
    assert {word for _, words, _ in BLOCKS for word in words} == {"run", "data", "slow"}
    assert README.count("```") == 2 * len(BLOCKS)


@pytest.fixture
def project(tmp_path):
    """A copy of the checkout as the blocks need it, to which they may add data and whose runs disturb no others."""
    for name in ("notebooks", "data"):
        shutil.copytree(ROOT / name, tmp_path / name)
    return tmp_path


@pytest.mark.parametrize(("language", "words", "code"), cases())
def test_a_block_runs(language, words, code, project):
    if "data" in words:
        from workbench.data import datasets, registry

        names = [name for name in datasets.names() if name in code] or ["nnc-mm-i5-500"]
        if any(registry.locate(file) is None for name in names for file in datasets.files_of(name)):
            pytest.skip(f"the files of {', '.join(names)} are neither in the cache nor in a mirror (WORKBENCH_MIRROR)")
    path = sysconfig.get_path("scripts") + os.pathsep + os.environ["PATH"]
    command = [sys.executable, "-c", code] if language == "python" else ["bash", "-euo", "pipefail", "-c", code]
    env = {**os.environ, "PATH": path, "WORKBENCH_ROOT": str(project)}
    done = subprocess.run(command, cwd=project, env=env, capture_output=True, text=True, timeout=290, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_the_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = {match for text in re.findall(r"`([^`\n]+)`|^(make .*)$", README, re.MULTILINE) for match in re.findall(r"^make ([a-z-]+)", text[0] or text[1])}
    assert targets >= {"reproduce", "test", "lab"}
    assert [target for target in targets if f"\n{target}: " not in makefile] == []


def test_links_and_folders_lead_somewhere():
    links = set(re.findall(r"\]\(([^)#:]+)\)", README))
    assert "RESULTS.md" in links
    named = set(re.findall(r"`((?:workbench|data|tests|notebooks|figures)/[\w./]*)`", README))
    assert [name for name in sorted(links | named) if not (ROOT / name).exists()] == []


def test_the_commands_that_are_named_have_help():
    from typer.main import get_command

    from workbench.cli import build

    root = get_command(build())
    named = set(re.findall(r"workbench (data|space|reproduce|report)(?: ([a-z]+))?\b", README))
    assert {("data", "fetch"), ("space", "decode")} <= named
    for group, command in named:
        found = root.commands[group]
        if hasattr(found, "commands"):
            assert command in found.commands, (group, command)


def test_the_example_task_is_one_of_a_manifest(tmp_path):
    from workbench.data.datasets import names
    from workbench.reproduce.manifest import load_manifest

    (block,) = [code for language, _, code in BLOCKS if language == "toml"]
    own = (ROOT / "workbench/reproduce/manifest.toml").read_text(encoding="utf-8")
    path = tmp_path / "manifest.toml"
    path.write_text(own + "\n" + block)
    task = load_manifest(path).tasks["my-study"]
    assert task.parameters_for("paper") == {"repeats": 20, "profile": "paper"}
    assert len(task.data_sets(names())) == 5
