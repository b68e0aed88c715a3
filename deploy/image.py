"""The steps of deploy/Dockerfile that pip has no command for. It needs nothing but Python.

python image.py lock FILE SET            prints the rows of a lock file for serving, building, or data (litellm)
python image.py data SOURCE FOLDER       writes the data of litellm, a wheel or installed, into a folder
python image.py finish FOLDER [all]      compiles what serving loads, or everything, drops the symbols of libraries, and
                                         writes a bill of materials
"""

from __future__ import annotations

import compileall
import hashlib
import importlib
import json
import py_compile
import re
import struct
import sys
import sysconfig
import zipfile
from collections.abc import Callable, Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

# What the proxy loads; of litellm only data is read. A test compares both lists with what the packages require.
SERVING = frozenset(
    """aiohappyeyeballs anyio certifi cffi cryptography h11 hiredis httpcore httptools httpx idna isal
    msgspec prometheus-client redis rich starlette tiktoken typing-extensions uvloop xxhash""".split()
)
# Required by those and never loaded: rich's highlighting, tiktoken's download and special tokens, cffi's parser of C.
UNUSED = frozenset("charset-normalizer markdown-it-py mdurl pycparser pygments regex requests urllib3".split())
BUILDING = frozenset("hatchling packaging pathspec pluggy tomlkit trove-classifiers".split())
SETS = {"serving": SERVING, "building": BUILDING, "data": {"litellm"}}
PACKAGES = sysconfig.get_path("purelib")
DATA = "proxy/litellm_data"  # where the package has the data of litellm
TABLE = "model_prices_and_context_window_backup.json"
NOTICE = """The files in this folder are data from litellm {version} (MIT licence, see LICENSE); its code is not here.
The files in {ranks} are the BPE ranks that OpenAI publishes for tiktoken (MIT licence).

{digests}
"""
# Modules that serving and the health check import; what they import in turn is compiled with them.
LOADED = ("proxy.cli.main", "proxy.cli.__main__", "proxy.bootstrap", "encodings.idna", "urllib.request")
UNCHECKED = py_compile.PycInvalidationMode.UNCHECKED_HASH  # the files do not depend on time stamps


def lock(file: str, which: str, *more: str) -> None:
    """Prints the rows of a lock file that a set of packages has, and more of them by name."""
    rows = re.split(r"\n(?=\S)", Path(file).read_text())
    kept = [row for row in rows if row.partition("==")[0] in {*SETS[which], *more}]
    print("\n".join(row.strip("\n") for row in kept))


def data(source: str, folder: str) -> None:
    """Writes litellm's model table and rank files, its licence and a notice with their digests into a folder. `source`:
    its wheel, or the folder of an installed one. Raises ValueError if a rank file is not the published one."""
    from proxy.tokens.ranks import RANK_FILES, SOURCES

    names = (TABLE, *(f"{RANK_FILES}/{one.file}" for one in SOURCES.values()))
    version, contents = (_of_wheel if source.endswith(".whl") else _of_installed)(Path(source), names)
    written = {}
    for name, content in contents.items():
        (Path(folder) / name).parent.mkdir(parents=True, exist_ok=True)
        (Path(folder) / name).write_bytes(content)
        written[name] = hashlib.sha256(content).hexdigest()
    for one in SOURCES.values():
        if written[f"{RANK_FILES}/{one.file}"] != one.sha256:
            raise ValueError(f"{one.file} is not the published one")
    digests = "\n".join(f"sha256 {digest}  {name}" for name, digest in written.items())
    (Path(folder) / "NOTICE").write_text(NOTICE.format(version=version, ranks=RANK_FILES, digests=digests))


def _of_wheel(wheel: Path, names: tuple[str, ...]) -> tuple[str, dict[str, bytes]]:
    """The version of a wheel of litellm, and these files of it, with its licence."""
    with zipfile.ZipFile(wheel) as archive:
        licence = next(n for n in archive.namelist() if re.fullmatch(r"litellm-[^/]*/(licenses/)?LICENSE", n))
        contents = {name: archive.read(f"litellm/{name}") for name in names}
        return wheel.name.split("-")[1], contents | {"LICENSE": archive.read(licence)}


def _of_installed(folder: Path, names: tuple[str, ...]) -> tuple[str, dict[str, bytes]]:
    """The version of the litellm that is installed in a folder, and these files of it, with its licence."""
    (about,) = distributions(name="litellm", path=[str(folder.parent)])
    licence = next(file for file in about.files or () if file.name == "LICENSE")
    contents = {name: (folder / name).read_bytes() for name in names}
    return about.version, contents | {"LICENSE": Path(str(licence.locate())).read_bytes()}


def finish(target: str, extent: str = "", folder: str = PACKAGES) -> None:
    """Writes `bytecode/` and `sbom.json` for the packages in a folder, whose libraries lose their symbols."""
    sys.pycache_prefix = str(Path(target) / "bytecode")
    if extent == "all":
        compileall.compile_dir(folder, quiet=2, workers=0, invalidation_mode=UNCHECKED)  # some are no code: templates
    bytecode(folder)
    for library in Path(folder).rglob("*.so"):
        lean = library.with_suffix(".lean")  # not in place: this process has loaded some of them
        lean.write_bytes(without_symbols(library.read_bytes()))
        lean.replace(library)
    (Path(target) / "sbom.json").write_text(json.dumps(sbom(folder), indent=1) + "\n")


def bytecode(folder: str) -> None:
    """Compiles the proxy and all that it loads, the standard library too: images of Python come without its bytecode.

    Raises `py_compile.PyCompileError`.
    """
    for name in LOADED:
        importlib.import_module(name)
    loaded = {getattr(module, "__file__", None) or "" for module in [*sys.modules.values()]} - {__file__}
    sources = {*filter(re.compile(r"\.py$").search, loaded), *map(str, Path(folder, "proxy").rglob("*.py"))}
    for source in sorted(sources):
        py_compile.compile(source, doraise=True, invalidation_mode=UNCHECKED)


def without_symbols(library: bytes) -> bytes:
    """An ELF file of 64 bits (little endian) without what stands behind its last segment: symbols for debuggers, which
    were 20 of the image's 84 MB. A loader reads segments only; `strip` is not on images of Python. Any other file is
    returned as it is."""
    if library[:6] != b"\x7fELF\x02\x01":
        return library
    headers, size, count = *struct.unpack_from("<Q", library, 32), *struct.unpack_from("<HH", library, 54)
    segments = (struct.unpack_from("<Q16xQ", library, headers + size * i + 8) for i in range(count))
    kept = bytearray(library[: max(headers + size * count, *map(sum, segments))])
    struct.pack_into("<Q", kept, 40, 0)  # there is no table of sections any more
    struct.pack_into("<HHH", kept, 58, 0, 0, 0)
    return bytes(kept)


def sbom(folder: str) -> dict[str, Any]:
    """The bill of materials (CycloneDX) of the packages in a folder, and of litellm's data."""
    parts = [component(one) for one in distributions(path=[folder])]
    (about,) = (part for part in parts if part["name"] == "plimsoll")
    found = sorted(
        [*(part for part in parts if part is not about), *_installed_data(Path(folder))], key=lambda part: part["name"]
    )
    kind = {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1}
    return {**kind, "metadata": {"component": about}, "components": found}


def component(one: Distribution) -> dict[str, Any]:
    """A package of the bill of materials, as its metadata describe it."""
    name = re.sub(r"[-_.]+", "-", one.name).lower()
    expressions, texts = (one.metadata.get_all(field) or [] for field in ("License-Expression", "License"))
    licence = {"expression": expressions[0]} if expressions else {"license": {"name": (texts or ["see its files"])[0]}}
    kind = "application" if name == "plimsoll" else "library"
    purl = f"pkg:pypi/{name}@{one.version}"
    return {"type": kind, "bom-ref": purl, "name": name, "version": one.version, "purl": purl, "licenses": [licence]}


def _installed_data(folder: Path) -> Iterator[dict[str, Any]]:
    notice = folder / DATA / "NOTICE"
    if notice.is_file():
        yield from data_of(notice.read_text())


def data_of(notice: str) -> Iterator[dict[str, Any]]:
    """The data of litellm in the bill of materials, by the notice beside them."""
    version = notice.partition("litellm ")[2].split()[0]
    for digest, name in re.findall(r"^sha256 (\w+)  (\S+)$", notice, re.MULTILINE):
        hashes = [{"alg": "SHA-256", "content": digest}]
        yield {"type": "data", "name": f"litellm/{name}", "version": version, "hashes": hashes}


COMMANDS: dict[str, Callable[..., None]] = {"lock": lock, "data": data, "finish": finish}

if __name__ == "__main__":
    COMMANDS[sys.argv[1]](*sys.argv[2:])
