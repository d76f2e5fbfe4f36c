"""THIRD_PARTY.md from requirements.lock and the licences that the installed packages state. `python tests/third_party.py` (`make third-party`) writes it."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import Distribution, distribution
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements.lock"
TARGET = ROOT / "THIRD_PARTY.md"

# Spellings of a licence's name that mean one SPDX licence. "BSD", "Apache" and the like do not say which; the licence's text does.
SPDX = {
    "MIT": "MIT",
    "MIT License": "MIT",
    "ISC License": "ISC",
    "ISC License (ISCL)": "ISC",
    "Apache-2.0": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "BSD-2-Clause": "BSD-2-Clause",
    "BSD 2-Clause License": "BSD-2-Clause",
    "BSD-3-Clause": "BSD-3-Clause",
    "BSD 3-Clause License": "BSD-3-Clause",
    "MPL-2.0": "MPL-2.0",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "MPL-2.0 AND MIT": "MPL-2.0 AND MIT",
    "PSFL": "PSF-2.0",
}

PAPERS = (
    "MetaTune: J. Ryu, H. Sung, *MetaTune: Meta-Learning Based Cost Model for Fast and Efficient Auto-tuning Frameworks*, 2021, arXiv:2102.04199",
    "NN+C: A. Srivastava, N. Zhang, R. Kannan, V. K. Prasanna, *Towards High Performance, Portability, and Productivity: Lightweight Augmented Neural Networks "
    "for Performance Prediction*, 2020, arXiv:2003.07497",
)


def pins(text: str) -> list[tuple[str, str]]:
    """(name, version) of each line `name==version`, in order. Raises ValueError for a line that is neither that, nor a comment, nor empty."""
    found = []
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        match = re.fullmatch(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([0-9][A-Za-z0-9.]*)", line)
        if match is None:
            raise ValueError(f"not an exact pin of one release: {line!r}")
        found.append((match[1], match[2]))
    return found


def licence(dist: Distribution) -> str:
    """SPDX expression where the package's metadata or the text of its licence makes it sure, else the words that the package states."""
    if expression := dist.metadata.get("License-Expression"):
        return expression
    field = (dist.metadata.get("License") or "").strip()
    if sure := SPDX.get(field) or SPDX.get(field.replace("license", "License")) or _from_text(field):
        return sure
    files = [file for file in dist.files or () if re.match(r"(LICEN[CS]E|COPYING)(\.\w+)?$", file.name, re.I) and ".dist-info" in str(file.parent)]
    texts = {_from_text(file.read_text(encoding="utf-8")) for file in files}
    if len(texts) == 1 and (sure := texts.pop()):
        return sure
    classifiers = [c.rpartition(" :: ")[2] for c in dist.metadata.get_all("Classifier") or () if c.startswith("License :: ")]
    words = [SPDX.get(c, c) for c in classifiers if c != "DFSG approved"]
    return " AND ".join(words) or (field.splitlines() or ["not stated"])[0]


def _from_text(text: str) -> str:
    """SPDX name of a licence's full text, "" if it is not one of the common ones or more than one."""
    flat = " ".join(text.split())
    found = []
    if "Apache License Version 2.0, January 2004" in flat:
        found.append("Apache-2.0")
    if "Permission is hereby granted, free of charge, to any person obtaining a copy" in flat:
        found.append("MIT")
    if "Permission to use, copy, modify, and/or distribute this software for any purpose" in flat:
        found.append("ISC")
    if "Mozilla Public License Version 2.0" in flat:
        found.append("MPL-2.0")
    if "Redistributions in binary form must reproduce" in flat:
        third = re.search(r"(endorse or promote|Neither the name)", flat, re.I)
        found.append("BSD-3-Clause" if third else "BSD-2-Clause")
    return found[0] if len(found) == 1 else ""


def home(dist: Distribution) -> str:
    """Home page as the package states it; its page on PyPI if it states none."""
    urls = {label.strip().lower().replace("-", " "): url.strip() for label, _, url in (u.partition(",") for u in dist.metadata.get_all("Project-URL") or ())}
    for label in ("homepage", "home", "home page", "repository", "source", "source code", "github", "code"):
        if label in urls:
            return urls[label]
    return dist.metadata.get("Home-page") or f"https://pypi.org/project/{dist.metadata['Name']}/"


def packages() -> list[str]:
    """A table row for each pin of the lock."""
    rows = []
    for name, version in pins(LOCK.read_text(encoding="utf-8")):
        dist = distribution(name)
        rows.append(f"| {name} | {version} | {licence(dist)} | <{home(dist)}> |")
    return rows


def sources() -> list[str]:
    """A table row for each repository of data that data/external.toml names."""
    files = tomllib.loads((ROOT / "data" / "external.toml").read_text(encoding="utf-8"))["file"]
    rows = []
    for repository in dict.fromkeys(file["repository"] for file in files):
        of = [file for file in files if file["repository"] == repository]
        stated = " / ".join(sorted({file["licence"] for file in of}))
        rows.append(f"| <https://github.com/{repository}> | {len(of)} | {sum(file['bytes'] for file in of) / 1e6:.1f} MB | {stated} | no |")
    return rows


def document() -> str:
    """The whole of THIRD_PARTY.md."""
    lines = [
        "# Third parties",
        "",
        "Written by `make third-party`. Workbench itself is under the Apache License 2.0 ([LICENSE](LICENSE)) and redistributes nothing that is listed here.",
        "",
        "## Data",
        "",
        "Measurements that others published. `data/external.toml` has each file's address, checksum and licence; the files are fetched or read from a mirror,",
        "never committed and not redistributed.",
        "",
        "| Repository | Files | Size | Licence | Redistributed |",
        "|---|---|---|---|---|",
        *sources(),
        "",
        "## Papers",
        "",
        "Reproduced from their text; none of it, and none of their authors' code, is part of this repository.",
        "",
        *(f"- {paper}" for paper in PAPERS),
        "",
        "## Packages",
        "",
        "What `requirements.lock` pins and `make` installs from PyPI, with the licence that each package states (SPDX where it is sure). The CUDA build of",
        "torch also brings packages of NVIDIA under NVIDIA's own licences, and triton (MIT); the lock does not name them.",
        "",
        "| Package | Version | Licence | Home page |",
        "|---|---|---|---|",
        *packages(),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    TARGET.write_text(document(), encoding="utf-8")
    print(f"wrote {TARGET.name}")
