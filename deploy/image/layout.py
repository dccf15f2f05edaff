#!/usr/bin/env python3
"""Writes an OCI image layout (github.com/opencontainers/image-spec) for build.sh.

The last stage of deploy/Dockerfile is the description of the image: user, volume, port, command, and
what is copied where. So both builds make the same image, except for Debian's base.
"""
import argparse
import datetime
import gzip
import hashlib
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import tarfile
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
# In debian:bookworm-slim without being named.
BASE = {"libc6", "libgcc-s1", "zlib1g"}
WRITABLE = {"tmp": 0o1777}


def last_stage():
    """The instructions of the last stage, as (word, rest)."""
    text = (ROOT / "deploy/Dockerfile").read_text()
    text = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", text, flags=re.M))
    lines = [line.split(None, 1) for line in text.splitlines() if line.strip()]
    begin = max(n for n, line in enumerate(lines) if line[0] == "FROM")
    return [(line[0], line[1]) for line in lines[begin + 1 :]]


def of(word):
    found = [rest for name, rest in last_stage() if name == word]
    if not found:
        sys.exit(f"image: the last stage of deploy/Dockerfile has no {word}")
    return found


def packages(libraries):
    """Debian's packages in the image. Those of `libraries` must be in the Dockerfile's image too."""
    named = re.search(r"--no-install-recommends ([^&]*)", " ".join(of("RUN")))[1].split()
    for library in libraries:
        if library not in named and library not in BASE:
            sys.exit(f"image: the program needs {library}, which deploy/Dockerfile does not install")
    return sorted(set(named) | set(libraries))


def copies(sources):
    """Pairs of (file or directory here, path in the image) for each COPY."""
    for rest in of("COPY"):
        *froms, to = rest.split()
        stage = froms.pop(0).removeprefix("--from=") if froms[0].startswith("--from=") else None
        for source in froms:
            here = sources[stage] if stage else ROOT / source
            inside = to.rstrip("/") + ("/" + pathlib.Path(source).name if to.endswith("/") else "")
            yield pathlib.Path(here), inside.lstrip("/")


def files_of(source, inside):
    """Every file and directory below `source`, with its path in the image."""
    if source.is_dir():
        yield source, inside
        for path in source.rglob("*"):
            yield path, f"{inside}/{path.relative_to(source)}".lstrip("/")
    else:
        yield source, inside


def write_layer(entries, user, out):
    """Writes one gzipped tar, sorted, with one time and one owner. Returns its descriptor and diff id."""
    epoch = int(os.environ["SOURCE_DATE_EPOCH"])
    entries = {inside: source for source, inside in entries if inside}
    for inside in list(entries):  # parents that no source has
        for parent in pathlib.PurePosixPath(inside).parents:
            if str(parent) != ".":
                entries.setdefault(str(parent), None)
    file = out / "layer"
    with file.open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed:
        hashing = Hashing(packed)
        with tarfile.open(fileobj=hashing, mode="w|", format=tarfile.PAX_FORMAT) as tar:
            for inside, source in sorted(entries.items()):
                info = tarfile.TarInfo(inside)
                info.mtime = epoch
                if inside == "var/lib/keepsake":
                    info.uid = info.gid = user
                if source is None or (source.is_dir() and not source.is_symlink()):
                    info.type, info.mode = tarfile.DIRTYPE, WRITABLE.get(inside, 0o755)
                    tar.addfile(info)
                elif source.is_symlink():
                    info.type, info.mode, info.linkname = tarfile.SYMTYPE, 0o777, os.readlink(source)
                    tar.addfile(info)
                else:
                    info.mode = 0o755 if os.access(source, os.X_OK) and os.stat(source).st_mode & 0o111 else 0o644
                    info.size = source.stat().st_size
                    with source.open("rb") as content:
                        tar.addfile(info, content)
    media = "application/vnd.oci.image.layer.v1.tar+gzip"
    return store(out, file, media), f"sha256:{hashing.digest.hexdigest()}"


class Hashing:
    """A writer that hashes what passes."""

    def __init__(self, inner):
        self.inner, self.digest = inner, hashlib.sha256()

    def write(self, data):
        self.digest.update(data)
        return self.inner.write(data)


def store(out, file, media):
    digest, size = hashlib.sha256(file.read_bytes()).hexdigest(), file.stat().st_size
    file.rename(out / "blobs/sha256" / digest)
    return {"mediaType": media, "digest": f"sha256:{digest}", "size": size}


def store_json(out, value, media):
    file = out / "value"
    file.write_text(json.dumps(value, indent=1, sort_keys=True))
    return store(out, file, media)


def labels(version, created):
    git = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    revision = subprocess.run(git, capture_output=True, text=True).stdout.strip()
    cargo = tomllib.loads((ROOT / "Cargo.toml").read_text())
    texts = {
        "title": "Keepsake",
        "description": cargo["package"]["description"],
        "version": version,
        "licenses": cargo["workspace"]["package"]["license"],
        "revision": revision,
        "created": created,
    }
    return {f"org.opencontainers.image.{name}": value for name, value in texts.items() if value}


def account(user, work):
    """The user by name, which Debian's useradd writes in the Dockerfile's image."""
    etc = work / "etc"
    home = "/var/lib/keepsake"
    (etc / "passwd").write_text(
        f"root:x:0:0:root:/root:/sbin/nologin\nkeepsake:x:{user}:{user}::{home}:/sbin/nologin\n"
    )
    (etc / "group").write_text(f"root:x:0:\nkeepsake:x:{user}:\n")


def write(arguments):
    out = arguments.out
    (out / "blobs/sha256").mkdir(parents=True)
    user = int(of("USER")[-1])
    account(user, arguments.system)
    sources = {"build": arguments.program, "model": arguments.model}
    copied = {inside: source for source, inside in copies(sources)}
    model = [inside for inside, source in copied.items() if source == arguments.model]
    # What changes least comes first, so that an update fetches little.
    layers = [
        [(path, inside) for path, inside in files_of(arguments.system, "")],
        [pair for inside in model for pair in files_of(copied[inside], inside)],
        [pair for inside in copied if inside not in model for pair in files_of(copied[inside], inside)],
    ]
    written = [write_layer(layer, user, out) for layer in layers]
    created = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)
    created = created.strftime("%Y-%m-%dT%H:%M:%SZ")
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    platform_ = {"architecture": ARCHITECTURES[platform.machine()], "os": "linux"}
    config = {
        **platform_,
        "created": created,
        "config": {
            "User": str(user),
            "ExposedPorts": {f"{port}/tcp": {} for ports in of("EXPOSE") for port in ports.split()},
            "Volumes": {volume: {} for volume in of("VOLUME")},
            "Env": ["PATH=/usr/local/bin:/usr/bin:/bin"],
            "Entrypoint": json.loads(of("ENTRYPOINT")[-1]),
            "Cmd": json.loads(of("CMD")[-1]),
            "WorkingDir": "/",
            "Labels": labels(version, created),
        },
        "rootfs": {"type": "layers", "diff_ids": [diff for _, diff in written]},
        "history": [
            {"created": created, "created_by": f"deploy/image/build.sh: {what}"}
            for what in ["Debian's libraries", "model", "program"]
        ],
    }
    image = "application/vnd.oci.image."
    manifest = {
        "schemaVersion": 2,
        "mediaType": image + "manifest.v1+json",
        "config": store_json(out, config, image + "config.v1+json"),
        "layers": [descriptor for descriptor, _ in written],
    }
    entry = store_json(out, manifest, image + "manifest.v1+json")
    entry |= {"platform": platform_, "annotations": {"org.opencontainers.image.ref.name": version}}
    index = {"schemaVersion": 2, "mediaType": image + "index.v1+json", "manifests": [entry]}
    (out / "index.json").write_text(json.dumps(index, indent=1, sort_keys=True))
    (out / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    megabytes = sum(layer["size"] for layer in manifest["layers"]) / 1e6
    print(f"image: {entry['digest']}, {megabytes:.0f} MB in {len(layers)} layers")


def main():
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("packages").add_argument("libraries", type=pathlib.Path)
    writes = commands.add_parser("write")
    for name in ["system", "program", "model", "out"]:
        writes.add_argument(f"--{name}", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    if arguments.command == "packages":
        print("\n".join(packages(arguments.libraries.read_text().split())))
    else:
        write(arguments)


main()
