#!/usr/bin/env python3
"""Adds the licences of all code in wheels that is not ours: add_licences.py FOLDER WHEEL...

FOLDER gets the wheels. Libraries that auditwheel has put into them are files of Debian packages, whose copyright files go into
.dist-info/licenses/bundled; packages of one source, which share a text, are there once.
"""
import importlib.metadata
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile

# Their code is in the compiled module itself.
COMPILED_IN = ["libfaiss-dev", "libhnswlib-dev", "libeigen3-dev", "libcli11-dev", "libxxhash-dev", "libboost1.81-dev"]


def package_of(library: str) -> str:
    """The Debian package of a shared library by its name as auditwheel wrote it, with a hash: libz-4d0ac2f1.so.1.2.13."""
    name = re.sub(r"-[0-9a-f]{8}(?=\.)", "", library)
    # Some lie in a folder of their own, so that another package can provide the same.
    places = [f"*/{sysconfig.get_config_var('MULTIARCH')}/{folder}{name}" for folder in ("", "*/")]
    found = subprocess.run(["dpkg-query", "--search", *places], capture_output=True, text=True).stdout
    if not found:
        sys.exit(f"{library}: no Debian package has {name}")
    return found.split(":")[0]


def nanobind_licence() -> pathlib.Path:
    """Of what makes the module one of Python's."""
    (file,) = [file for file in importlib.metadata.files("nanobind") if file.name == "LICENSE"]
    return pathlib.Path(file.locate())


def wheel(*arguments) -> None:
    subprocess.run([sys.executable, "-m", "wheel", *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)


def add_licences(path: str, folder: pathlib.Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        wheel("unpack", "--dest", scratch, path)
        (content,) = pathlib.Path(scratch).iterdir()
        (about,) = content.glob("*.dist-info")
        packages = {package_of(library.name) for library in content.glob("*.libs/*")} | set(COMPILED_IN)
        texts = {package: pathlib.Path("/usr/share/doc", package, "copyright") for package in sorted(packages)}
        texts["nanobind"] = nanobind_licence()
        target = about / "licenses" / "bundled"
        target.mkdir(parents=True)
        once = {text.read_bytes(): package for package, text in reversed(texts.items())}
        for package in once.values():
            shutil.copy(texts[package], target / package)
        wheel("pack", "--dest-dir", folder, content)  # lists the files anew


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for path in sys.argv[2:]:
        add_licences(path, folder)


if __name__ == "__main__":
    main()
