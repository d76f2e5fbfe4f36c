"""What a stranger gets with a clone: pins that agree, a package that imports quickly and says what is missing, a licence, and a tidy tree."""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import nbformat
import pytest
import third_party
import yaml

ROOT = Path(__file__).resolve().parents[1]
PINS = third_party.pins((ROOT / "requirements.lock").read_text(encoding="utf-8"))
FOLDERS = {"notebooks", "workbench", "data", "figures", "tests", ".ci"}
FILES = {
    "environment.yml",
    "README.md",
    "RESULTS.md",
    "LICENSE",
    "THIRD_PARTY.md",
    "pyproject.toml",
    "requirements.lock",
    "Makefile",
    ".gitignore",
    ".gitattributes",
}
# What the project is asked to stand on; where a version matters (a newer one fails, or results depend on it) it is held here too.
NAMED = {
    "jupyterlab": None,
    "papermill": None,
    "pandas": None,
    "matplotlib": None,
    "seaborn": None,
    "torch": "2.13.0",
    "dgl": "1.1.3",
    "higher": "0.2.1",
    "botorch": "0.18.1",
    "apache-tvm": "0.27.0.post1",
    "apache-tvm-ffi": "0.1.14.post0",
    "halide": "21.0.0",
    # The plain xgboost wheel requires a package of NVIDIA's.
    "xgboost-cpu": "3.2.0",
}


def python(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter, outside the checkout so that the installed package is what is imported."""
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=280, cwd=Path(sys.prefix), env={**os.environ, **env}, check=False
    )


def tracked() -> list[Path]:
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip("not a git checkout: what is tracked cannot be told")
    # A file that was deleted and not yet committed is still listed.
    return [ROOT / name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]


# ---------------------------------------------------------------------------------------------------- pins
def test_environment_yml_repeats_the_lock_in_its_order():
    document = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    assert document["channels"] == ["conda-forge", "nodefaults"]
    *conda, pip = document["dependencies"]
    assert conda == ["python=3.11", "pip"]
    assert third_party.pins("\n".join(pip["pip"])) == PINS


def test_the_lock_has_each_package_once_at_one_exact_release():
    names = [re.sub(r"[-_.]+", "-", name).lower() for name, _ in PINS]
    assert len(set(names)) == len(names) > 150
    assert [name for name in names if re.match(r"(nvidia|cuda|triton|pytorch-triton)", name)] == []


@pytest.mark.parametrize(
    "line", ["torch==2.13.0+cpu", "torch>=2.13.0", "torch", "torch==2.13.0 --hash=sha256:00", "torch==2.*", "torch @ https://x/torch.whl", "-r other.txt"]
)
def test_a_line_that_is_no_exact_pin_is_refused(line):
    with pytest.raises(ValueError, match="not an exact pin"):
        third_party.pins(f"# comment\nnumpy==2.4.6\n{line}\n")


@pytest.mark.parametrize("name", NAMED)
def test_the_lock_has_what_the_project_stands_on(name):
    version = dict(PINS)[name]
    assert NAMED[name] in (None, version)


def test_what_is_installed_is_what_is_locked():
    # The CPU build of torch calls itself 2.13.0+cpu.
    installed = [(name, importlib.metadata.version(name).partition("+")[0]) for name, _ in PINS]
    assert installed == PINS


def test_installed_packages_agree_with_each_other():
    done = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_wheel_declares_what_the_code_imports():
    """Every module that workbench imports belongs to a package that pyproject.toml names and the lock pins."""
    imported = set()
    for path in (ROOT / "workbench").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module.partition(".")[0])
    imported -= {*sys.stdlib_module_names, "workbench"}
    assert {"numpy", "torch"} <= imported
    # Of an extra, which need not be installed; the second is a package that the first brings.
    extra = {"kernel_tuner", "constraint"}
    assert extra <= imported
    owners = importlib.metadata.packages_distributions()
    packages = {re.sub(r"[-_.]+", "-", owner).lower() for module in imported - extra for owner in owners[module]}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {re.split(r"[\[<>=!~; ]", line)[0].lower() for line in project["dependencies"]}
    assert [line.partition(">")[0] for line in project["optional-dependencies"]["kernel-tuner"]] == ["kernel-tuner"]
    # Distributed is an extra of dask.
    assert "dask[distributed]" in project["dependencies"]
    assert packages - declared - {"distributed"} == set()
    assert declared <= {re.sub(r"[-_.]+", "-", name).lower() for name, _ in PINS}


def test_a_wheel_carries_the_data_files_and_the_licence(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "workbench", source / "workbench", ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(tmp_path), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("workbench-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    expected = [
        p.relative_to(ROOT).as_posix() for p in (ROOT / "workbench").rglob("*") if p.suffix in (".py", ".toml", ".html", ".typed", ".cpp", ".cu", ".hpp")
    ]
    assert [name for name in expected if name not in names] == []
    assert any(name.endswith("licenses/LICENSE") for name in names)


# ---------------------------------------------------------------------------------------------------- imports
def test_import_workbench_is_quick_and_loads_the_standard_library_only():
    code = """
import json, sys, time
before = set(sys.modules)
start = time.perf_counter()
import workbench
seconds = time.perf_counter() - start
print(json.dumps([seconds, sorted({name.partition(".")[0] for name in set(sys.modules) - before} - sys.stdlib_module_names)]))
"""
    runs = [json.loads(python(code).stdout) for _ in range(5)]
    assert {tuple(modules) for _, modules in runs} == {("workbench",)}
    assert min(seconds for seconds, _ in runs) < 0.1


def test_help_of_the_command_line_loads_no_heavy_package():
    done = python("import sys; from workbench.cli import build; build(); print({'numpy', 'pandas', 'torch', 'dask', 'matplotlib'} & set(sys.modules))")
    assert done.stdout.strip() == "set()", done.stderr


BLOCK = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {package!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
import workbench
from workbench.errors import MissingPackage
try:
    workbench.{name}
except MissingPackage as error:
    print(error)
"""


@pytest.mark.parametrize(("name", "package"), [("load_dataset", "pandas"), ("Space", "numpy")])
def test_a_missing_package_is_named_with_the_command_that_installs_it(name, package):
    done = python(BLOCK.format(name=name, package=package))
    assert done.stdout == f"workbench.{name} needs the package {package!r}, which is not installed; run: pip install {package}\n", done.stderr


def test_a_package_is_named_as_pip_names_it():
    from workbench.errors import MissingPackage

    error = MissingPackage.needed_by("a forest", ModuleNotFoundError("No module named 'sklearn.ensemble'", name="sklearn.ensemble"))
    assert str(error).endswith("run: pip install scikit-learn")
    assert isinstance(error, ImportError)
    assert error.name == "sklearn.ensemble"


def test_a_fault_of_ours_is_not_taken_for_a_missing_package(monkeypatch):
    import workbench

    monkeypatch.setitem(workbench._LAZY, "Gone", "workbench.gone")
    with pytest.raises(ModuleNotFoundError, match=r"workbench\.gone"):
        _ = workbench.Gone
    with pytest.raises(AttributeError, match="no attribute 'load_datset'"):
        _ = workbench.load_datset


def test_every_public_name_loads():
    import workbench

    assert dir(workbench) == sorted(workbench.__all__)
    assert all(getattr(workbench, name) is not None for name in workbench.__all__)


@pytest.mark.slow
def test_the_whole_stack_imports_in_one_process(tmp_path):
    modules = "jupyterlab papermill torch dgl higher botorch tvm halide pandas matplotlib.pyplot seaborn xgboost numba sklearn stable_baselines3 workbench"
    code = f"import importlib\nfor name in {modules.split()!r}: importlib.import_module(name)\nprint('all imported')"
    # DGL writes its configuration into the home folder.
    done = python(code, DGLBACKEND="pytorch", HOME=str(tmp_path), MPLBACKEND="agg", MPLCONFIGDIR=str(tmp_path))
    assert done.stdout.strip().endswith("all imported"), done.stderr


# ---------------------------------------------------------------------------------------------------- licences
def test_the_licence_is_apache_2():
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    ours, template = "   Copyright 2026 The Workbench developers\n", "   Copyright [yyyy] [name of copyright owner]\n"
    assert text.count(ours) == 1
    # The sum of LICENSE-2.0.txt as apache.org publishes it.
    published = hashlib.sha256(text.replace(ours, template).encode()).hexdigest()
    assert published == "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"


def test_third_party_lists_the_lock_and_the_data_sources():
    text = third_party.TARGET.read_text(encoding="utf-8")
    table = text[text.index("| Package |") :].splitlines()[2:]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in table]
    # Licence and home page are what the wheel of this platform states, so only their presence is held.
    assert [(name, version) for name, version, *_ in cells] == PINS, "run: make third-party"
    assert all(len(row) == 4 and row[2] and row[3] for row in cells)
    assert [row for row in third_party.sources() if row not in text.splitlines()] == [], "run: make third-party"
    assert [paper for paper in third_party.PAPERS if paper not in text] == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Redistributions in binary form must reproduce the notice.", "BSD-2-Clause"),
        ("Redistributions in binary form must reproduce the notice.\nNeither the name\nof X may be used to endorse or promote", "BSD-3-Clause"),
        ("Apache License\n   Version 2.0, January 2004", "Apache-2.0"),
        ("Permission is hereby granted, free of charge, to any person obtaining a copy", "MIT"),
        ("Apache License\n Version 2.0, January 2004\nPermission is hereby granted, free of charge, to any person obtaining a copy", ""),
        ("All rights reserved.", ""),
    ],
)
def test_a_licence_is_told_from_its_text_only_where_it_is_one(text, name):
    assert third_party._from_text(text) == name


# ---------------------------------------------------------------------------------------------------- the tree
def test_the_top_level_is_the_agreed_one():
    assert {path.relative_to(ROOT).parts[0] for path in tracked()} <= FOLDERS | FILES


def test_no_tracked_file_is_large():
    assert {path.relative_to(ROOT): path.stat().st_size for path in tracked() if path.stat().st_size > 4_000_000} == {}


def test_no_tracked_file_names_a_path_of_one_machine():
    found = []
    for path in tracked():
        # CI looks for the mirror beside the checkout; pictures and tables are not text.
        if path.relative_to(ROOT).parts[0] == ".ci" or path.suffix in (".png", ".parquet", ".npz", ".safetensors"):
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            if re.search(r"(?<![\w.>-])/(work|root|tmp)/\w", line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}")
    assert found == []


NOTEBOOKS = sorted((ROOT / "notebooks").rglob("*.ipynb"))


def test_there_are_notebooks():
    assert len([path for path in NOTEBOOKS if ".ipynb_checkpoints" not in path.parts]) >= 1


@pytest.mark.parametrize("path", [path for path in NOTEBOOKS if ".ipynb_checkpoints" not in path.parts], ids=lambda path: path.stem)
def test_a_source_notebook_is_clean(path):
    book = nbformat.read(path, as_version=nbformat.NO_CONVERT)
    nbformat.validate(book)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert [cell.source for cell in code if cell.outputs or cell.execution_count is not None] == []
    assert sum("parameters" in cell.metadata.get("tags", []) for cell in code) == 1
    assert not any("papermill" in part.metadata for part in (book, *book.cells))
    assert book.metadata.kernelspec.name == "python3"
    assert book.cells[0].cell_type == "markdown"
    assert book.cells[0].source.startswith("# ")
