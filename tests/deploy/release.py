"""Builds what a release consists of, from the last commit: `python -m tests.deploy.release` (make release).

    gangsched-V-py3-none-any.whl, gangsched_lab-V-py3-none-any.whl    what is installed
    gangsched-V.tar.gz     the commit's tree as an sdist; both wheels can be built from it
    gangsched-V.tgz        the Helm chart
    gangsched-V.cdx.json   what an image holds, as CycloneDX
    SHA256SUMS             of all of these

The same commit gives the same bytes, with the locked build backend: times are the commit's, owners and the
order of files are fixed. The image is built where a container engine answers, and is not reproducible.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from gangsched import __version__
from tests.deploy.sbom import document
from tests.support.wheels import LAB, REPO

ENGINES = ("docker", "podman", "nerdctl", "buildah")
_BUILD = "import sys, setuptools.build_meta as backend; backend.build_wheel(sys.argv[1])"


def git(*arguments: str) -> bytes:
    command = ("git", "-c", "tar.umask=0022", *arguments)
    return subprocess.run(command, cwd=REPO, check=True, capture_output=True).stdout


def build(out: Path, tree: Path) -> None:
    """Everything but the image, into `out`; `tree`: an empty folder for the commit's files."""
    made_s = int(git("log", "-1", "--format=%ct"))
    with tarfile.open(fileobj=io.BytesIO(git("archive", "HEAD"))) as archive:
        archive.extractall(tree, filter="data")
        files = {one.name: one.mode for one in archive if one.isfile()}
    contents = {name: (tree / name).read_bytes() for name in files}
    for project in (Path(), LAB):
        _wheel(tree / project, out, made_s)
    [wheel] = out.glob("gangsched-*.whl")
    with zipfile.ZipFile(wheel) as package:
        [metadata] = [name for name in package.namelist() if name.endswith(".dist-info/METADATA")]
        version = metadata.partition("-")[2].removesuffix(".dist-info/METADATA")
        contents["PKG-INFO"] = package.read(metadata)
    name = f"gangsched-{version}"
    _pack(out / f"{name}.tar.gz", name, contents, files, made_s)
    chart = {
        path.removeprefix("deploy/chart/"): contents[path]
        for path in files
        if path.startswith("deploy/chart/")
    }
    _pack(out / f"{name}.tgz", "", chart, {}, made_s)
    (out / f"{name}.cdx.json").write_text(document(contents["requirements.runtime.lock"].decode(), version))
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}" for path in sorted(out.iterdir())]
    (out / "SHA256SUMS").write_text("\n".join(sums) + "\n")


def _wheel(project: Path, out: Path, made_s: int) -> None:
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(made_s), "PYTHONHASHSEED": "0"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _BUILD, str(out.resolve())],
        cwd=project,
        env=environment,
        umask=0o022,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise SystemExit(f"release: {project.name}: {done.stderr.strip()}")


def _pack(
    path: Path, root: str, contents: Mapping[str, bytes], modes: Mapping[str, int], made_s: int
) -> None:
    with (
        path.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=made_s) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name in sorted(contents):
            one = tarfile.TarInfo(f"{root}/{name}" if root else name)
            one.size, one.mtime = len(contents[name]), made_s
            one.mode = 0o755 if modes.get(name, 0) & 0o100 else 0o644
            archive.addfile(one, io.BytesIO(contents[name]))


def image(tree: Path) -> str:
    """Builds it where that is possible. Returns what came of it, in words. Raises: CalledProcessError."""
    engine = next((one for one in ENGINES if shutil.which(one)), "")
    if not engine:
        return f"the image is not built: none of {', '.join(ENGINES)} is installed"
    if subprocess.run([engine, "info"], capture_output=True).returncode != 0:
        return f"the image is not built: {engine} does not answer (see: {engine} info)"
    tag = f"gangsched:{__version__}"
    subprocess.run([engine, "build", "-t", tag, str(tree)], check=True)
    return f"the image {tag} is built by {engine}"


def main() -> None:
    """Builds into a folder, which is made again."""
    parser = argparse.ArgumentParser(prog="release", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("dist"))
    parser.add_argument("--no-image", action="store_true")
    flags = parser.parse_args()
    shutil.rmtree(flags.out, ignore_errors=True)
    flags.out.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="gangsched-release-") as scratch:
        build(flags.out, Path(scratch))
        for path in sorted(flags.out.iterdir()):
            print(path)
        if git("status", "--porcelain"):
            print("what is not committed is not in it")
        print("the image is not built: --no-image" if flags.no_image else image(Path(scratch)))


if __name__ == "__main__":
    main()
