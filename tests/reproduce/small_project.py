"""A checkout with notebooks of a few lines, a manifest, and no data."""

from __future__ import annotations

import shutil
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

PARAMETERS = 'profile = "smoke"\noutput_dir = ""\nseed = 0\nx = 1'
OPEN = "from workbench.reproduce.outputs import Outputs\nout = Outputs(output_dir, task='demo')"
CLOSE = "out.close()"
LIMITS = """
[profiles.smoke]
cell_limit_s = {cell}
task_limit_s = {task}
[profiles.paper]
cell_limit_s = 60
task_limit_s = 60
"""


class Project:
    """A checkout in a temporary folder."""

    def __init__(self, root: Path, cell_limit_s: float = 60, task_limit_s: float = 60) -> None:
        self.root = root
        (root / "notebooks").mkdir(parents=True)
        (root / "data").mkdir()
        shutil.copy(Path(__file__).parents[2] / "data" / "external.toml", root / "data" / "external.toml")
        self.manifest = root / "manifest.toml"
        self.manifest.write_text(LIMITS.format(cell=cell_limit_s, task=task_limit_s))

    def add(self, name: str, *cells: str, parameters: str = PARAMETERS, tagged: int = 1, entry: str = "", write: bool = True) -> None:
        """A task with a notebook: a heading, `tagged` parameters cells, then the cells."""
        tags = {"tags": ["parameters"]}
        heads = [new_code_cell(parameters, metadata=tags) for _ in range(tagged)] or [new_code_cell(parameters)]
        if write:
            nbformat.write(new_notebook(cells=[new_markdown_cell("# A notebook"), *heads, *(new_code_cell(cell) for cell in cells)]), self.path(name))
        with self.manifest.open("a") as file:
            file.write(f'[tasks.{name}]\nnotebook = "notebooks/{name}.ipynb"\n{entry}\n')

    def path(self, name: str) -> Path:
        return self.root / "notebooks" / f"{name}.ipynb"

    def folder(self, name: str, profile: str = "smoke") -> Path:
        return self.root / "runs" / profile / name
