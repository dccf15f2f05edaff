#!/usr/bin/env python3
"""Writes the packages of a release: each brings the program, the encoder, the judge and the licences, and nothing
is fetched when it starts. The program finds the encoder in ../share/keepsake/model.

    packages.py --program FILE --model DIR --client DIR --out DIR [wheel | npm | deb | archive]...

wheel    with the Python client; its tag names the oldest C library that program and runtime run on
npm      two: client and launcher from --client (deploy/clients/typescript, built), and the program
deb      for Debian and Ubuntu; needs dpkg-deb
archive  a tarball with the chart, the dashboards and the reference too

The same inputs make the same bytes: SOURCE_DATE_EPOCH is the time of every file.
"""
import argparse
import base64
import csv
import gzip
import hashlib
import io
import json
import os
import pathlib
import platform
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAME = "keepsake-recall"
CARGO = tomllib.loads((ROOT / "Cargo.toml").read_text())
VERSION = CARGO["workspace"]["package"]["version"]
SUMMARY = CARGO["package"]["description"]
LICENCE = CARGO["workspace"]["package"]["license"]
EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", 0))
MACHINE = {"arm64": "aarch64"}.get(platform.machine(), platform.machine())
SYSTEM = platform.system().lower()
NODE = {"x86_64": "x64", "aarch64": "arm64"}[MACHINE]
DEBIAN = {"x86_64": "amd64", "aarch64": "arm64"}[MACHINE]
# Libraries that every Linux of manylinux has (PEP 600), besides those of the C library itself.
EVERYWHERE = {"libgcc_s.so.1", "libstdc++.so.6"}
C_LIBRARY = re.compile(r"(lib(c|m|dl|rt|pthread)|ld-linux.*)\.so\.\d")
LICENCES = ["LICENSE-APACHE", "LICENSE-MIT", "NOTICE"]
# What the archive has besides program and encoder.
BESIDE = ["README.md", "CHANGELOG.md", "schemas", "config/default.toml", "config/REFERENCE.md"]
BESIDE += [f"deploy/{name}" for name in ["helm", "prometheus", "grafana", "model"]]
BESIDE += [f"deploy/{name}" for name in ["RUNBOOK.md", "README.md", "SIZING.md", "SECURITY.md", "book"]]


def fail(what):
    sys.exit(f"release: {what}")


def needs(files):
    """The libraries that `files` load, and the version of the C library that they need."""
    libraries, version = set(), (2, 17)
    for file in files:
        shown = subprocess.run(["objdump", "-p", file], check=True, capture_output=True, text=True).stdout
        libraries |= set(re.findall(r"NEEDED +(\S+)", shown))
        for found in re.findall(r"GLIBC_(\d+)\.(\d+)", shown):
            version = max(version, tuple(map(int, found)))
    return {name for name in libraries if not C_LIBRARY.fullmatch(name)}, version


class Prefix:
    """The files that every package has, by their path below /usr or wherever it is installed."""

    def __init__(self, program, model, licences):
        self.files = {"bin/keepsake": program}
        for file in sorted(path for path in model.rglob("*") if path.is_file()):
            self.files[f"share/keepsake/model/{file.relative_to(model)}"] = file
        # Errors name it. Not in share/doc, which images of Debian leave out.
        self.files["share/keepsake/RUNBOOK.md"] = ROOT / "deploy/RUNBOOK.md"
        for name in LICENCES:
            self.files[f"share/doc/{NAME}/{name}"] = ROOT / name
        self.files[f"share/doc/{NAME}/THIRD-PARTY"] = licences
        runtime = model / ("libonnxruntime.dylib" if SYSTEM == "darwin" else "libonnxruntime.so")
        if not runtime.is_file():
            fail(f"{model} has no {runtime.name}; run: deploy/model/setup.sh")
        if SYSTEM == "linux":
            self.libraries, self.glibc = needs([program, runtime])

    def copy(self, to):
        for inside, source in self.files.items():
            copy(source, to / inside, "bin/" in inside)


def copy(source, to, runs=False):
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, to)
    to.chmod(0o755 if runs else 0o644)


def write_tar(folder, base, out):
    """A gzipped tar of the files in `folder`, below the directory `base`."""
    with out.open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed:
        with tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as tar:
            for path in sorted(path for path in folder.rglob("*") if path.is_file()):
                info = tarfile.TarInfo(f"{base}/{path.relative_to(folder)}")
                info.size, info.mtime = path.stat().st_size, EPOCH
                info.mode = 0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644
                with path.open("rb") as content:
                    tar.addfile(info, content)
    return [out]


# --- wheel -------------------------------------------------------------------------------------------------------------


def wheel_tag(prefix):
    if SYSTEM == "darwin":
        return f"py3-none-macosx_{os.environ.get('MACOSX_DEPLOYMENT_TARGET', '14.0').replace('.', '_')}_arm64"
    if prefix.libraries - EVERYWHERE:
        # PyPI takes no such wheel; pip installs its file on a system with these libraries.
        return f"py3-none-linux_{MACHINE}"
    return "py3-none-manylinux_{}_{}_".format(*prefix.glibc) + MACHINE


def metadata(client):
    project = tomllib.loads((client / "pyproject.toml").read_text())["project"]
    lines = ["Metadata-Version: 2.4", f"Name: {NAME}", f"Version: {VERSION}", f"Summary: {SUMMARY}"]
    lines += [f"License-Expression: {LICENCE}"]
    lines += [f"License-File: {name}" for name in LICENCES]
    lines += [f"Requires-Python: {project['requires-python']}", "Description-Content-Type: text/markdown"]
    for extra, packages in project["optional-dependencies"].items():
        lines += [f"Provides-Extra: {extra}"]
        lines += [f'Requires-Dist: {package} ; extra == "{extra}"' for package in packages]
    return "\n".join(lines) + "\n\n" + (client / "README.md").read_text()


def wheel(prefix, arguments, scratch):
    client = ROOT / "deploy/clients/python"
    base = f"{NAME.replace('-', '_')}-{VERSION}"
    tag, info = wheel_tag(prefix), f"{base}.dist-info"
    files = {}
    for path in sorted((client / "keepsake_recall").rglob("*")):
        if path.suffix == ".py" or path.name == "py.typed":
            files[str(path.relative_to(client))] = path.read_bytes()
    for inside, source in prefix.files.items():
        top = "scripts" if inside.startswith("bin/") else "data"
        files[f"{base}.data/{top}/{inside.removeprefix('bin/')}"] = source.read_bytes()
    for name in LICENCES:
        files[f"{info}/licenses/{name}"] = (ROOT / name).read_bytes()
    files[f"{info}/METADATA"] = metadata(client).encode()
    made = f"Wheel-Version: 1.0\nGenerator: keepsake\nRoot-Is-Purelib: false\nTag: {tag}\n"
    files[f"{info}/WHEEL"] = made.encode()
    record, rows = f"{info}/RECORD", io.StringIO()
    lines = csv.writer(rows, lineterminator="\n")
    for inside, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.writerow([inside, f"sha256={digest}", len(content)])
    lines.writerow([record, "", ""])
    files[record] = rows.getvalue().encode()

    out = arguments.out / f"{base}-{tag}.whl"
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        for inside, content in files.items():
            entry = zipfile.ZipInfo(inside, time.gmtime(max(EPOCH, 315532800))[:6])
            entry.external_attr = (stat.S_IFREG | (0o755 if "/scripts/" in inside else 0o644)) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            packed.writestr(entry, content)
    return [out]


# --- npm ---------------------------------------------------------------------------------------------------------------


def npm(prefix, arguments, scratch):
    client = arguments.client
    if not (client / "dist/index.js").is_file():
        fail(f"{client}: has no dist; run there: npm ci --ignore-scripts && npm run build")
    described = json.loads((client / "package.json").read_text())
    for name in ["scripts", "devDependencies"]:
        del described[name]
    native = f"{NAME}-{SYSTEM}-{NODE}"
    folder = scratch / NAME
    # Not an optional dependency of the first: npm would fetch whatever a stranger publishes under its name.
    for path in [*(client / "dist").rglob("*"), client / "bin/keepsake.js", client / "README.md"]:
        if path.is_file():
            copy(path, folder / path.relative_to(client), path.parent.name == "bin")
    program = {"name": native, "version": VERSION, "license": LICENCE, "os": [SYSTEM], "cpu": [NODE]}
    program["description"] = f"The program of {NAME} for {SYSTEM} on {NODE}, with its encoder"
    prefix.copy(scratch / native)
    written = []
    for package, folder in [(described, folder), (program, scratch / native)]:
        (folder / "package.json").write_text(json.dumps(package, indent=2) + "\n")
        for name in LICENCES:
            copy(ROOT / name, folder / name)
        written += write_tar(folder, "package", arguments.out / f"{package['name']}-{VERSION}.tgz")
    return written


# --- Debian ------------------------------------------------------------------------------------------------------------


def deb(prefix, arguments, scratch):
    if SYSTEM != "linux" or not shutil.which("dpkg-deb"):
        print("release: no .deb: dpkg-deb is not here; on Debian: apt-get install dpkg")
        return []
    folder = scratch / "deb"
    prefix.copy(folder / "usr")
    document = folder / f"usr/share/doc/{NAME}"
    (document / "NOTICE").rename(document / "copyright")
    needed = {"libc6 (>= {}.{})".format(*prefix.glibc), "libgcc-s1", "libstdc++6"}
    if "libssl.so.3" in prefix.libraries:
        needed.add("libssl3 | libssl3t64")
    kilobytes = sum(source.stat().st_size for source in prefix.files.values()) // 1024
    control = f"""\
Package: {NAME}
Version: {VERSION}
Architecture: {DEBIAN}
Maintainer: The Keepsake contributors <keepsake-recall@localhost>
Installed-Size: {kilobytes}
Depends: {", ".join(sorted(needed))}
Recommends: ca-certificates
Section: database
Priority: optional
Description: {SUMMARY}
"""
    (folder / "DEBIAN").mkdir()
    (folder / "DEBIAN/control").write_text(control)
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir():
            path.chmod(0o755)
    out = arguments.out / f"{NAME}_{VERSION}_{DEBIAN}.deb"
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH)}
    command = ["dpkg-deb", "--build", "--root-owner-group", "-Zgzip", folder, out]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    return [out]


# --- archive -----------------------------------------------------------------------------------------------------------


def archive(prefix, arguments, scratch):
    base = f"keepsake-{VERSION}-{SYSTEM}-{MACHINE}"
    folder = scratch / base
    prefix.copy(folder)
    for name in BESIDE:
        source = ROOT / name
        # The chart links to the alerts; the archive has files only.
        for path in [source] if source.is_file() else sorted(source.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                copy(path, folder / path.relative_to(ROOT), path.stat().st_mode & stat.S_IXUSR)
    for name in LICENCES:
        copy(ROOT / name, folder / name)
    if arguments.sbom:
        copy(arguments.sbom, folder / arguments.sbom.name)
    if arguments.commit:
        (folder / "COMMIT").write_text(arguments.commit + "\n")
    return write_tar(folder, base, arguments.out / f"{base}.tar.gz")


KINDS = {"wheel": wheel, "npm": npm, "deb": deb, "archive": archive}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ["program", "model", "client", "out"]:
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    parser.add_argument("--sbom", type=pathlib.Path)
    parser.add_argument("--commit")
    parser.add_argument("kinds", nargs="*")
    arguments = parser.parse_args()
    for kind in arguments.kinds:
        if kind not in KINDS:
            parser.error(f"no such package: {kind}; there are {', '.join(KINDS)}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        licences, work = pathlib.Path(name) / "licences", pathlib.Path(name) / "work"
        with licences.open("w") as out:
            subprocess.run([sys.executable, ROOT / "deploy/release/sbom.py", "--licences"], check=True, stdout=out)
        prefix = Prefix(arguments.program, arguments.model, licences)
        for kind in arguments.kinds or KINDS:
            work.mkdir()
            for out in KINDS[kind](prefix, arguments, work):
                print(f"release: {out}, {out.stat().st_size / 1e6:.1f} MB")
            shutil.rmtree(work)


main()
