#!/usr/bin/env python3
"""Makes a release of a copy of this tree with the program that is there, and checks what it holds.

A release must be refused while the changelog, the chart or the tree do not fit, and made when they
do: the same archive twice, with checksums that hold and a list of crates that is valid by CycloneDX'
schema and agrees with Cargo.lock.

KEEPSAKE names the program, TOOLS the directory that tools.sh fills.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib

TOOLS = pathlib.Path(os.environ["TOOLS"])
sys.path.insert(0, str(TOOLS / "python"))
import jsonschema  # noqa: E402
import referencing  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCHEMAS = TOOLS / "python/cyclonedx/schema/_res"
WANTED = ["bin/keepsake", "share/keepsake/model/model.onnx", "CHANGELOG.md", "config/default.toml", "COMMIT"]
WANTED += ["share/keepsake/RUNBOOK.md", "LICENSE-MIT", "LICENSE-APACHE", "NOTICE"]
WANTED += ["deploy/helm/keepsake/Chart.yaml", "deploy/helm/keepsake/files/rules.yml", "deploy/RUNBOOK.md"]
LIBRARIES = ["rdkafka", "sled", "tantivy", "ort", "keepsake-domain"]
TESTS_ONLY = ["proptest", "jsonschema", "keepsake-simulated"]


def git(copy, *arguments):
    command = ["git", "-C", copy, "-c", "user.name=test", "-c", "user.email=test@localhost", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def copy_tree(to):
    """A repository of its own with the files of this one as they are now."""
    files = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"], check=True, capture_output=True
    ).stdout
    there = b"\0".join(file for file in files.split(b"\0") if file and os.path.lexists(ROOT / os.fsdecode(file)))
    packed = subprocess.run(
        ["tar", "-c", "-C", ROOT, "--no-recursion", "--null", "-T", "-"], input=there, check=True, capture_output=True
    ).stdout
    to.mkdir()
    subprocess.run(["tar", "-x", "-C", to], input=packed, check=True)
    git(to, "init", "--quiet")
    commit(to)


def commit(copy):
    git(copy, "add", "--all")
    git(copy, "commit", "--quiet", "--message", "a release")


def release(copy, out):
    command = [copy / "deploy/release/release.sh", "--program", copy.parent / "keepsake", "--client", copy]
    command += ["--model", copy.parent / "model", "--out", out, "archive"]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def refused(copy, out, words):
    code, said = release(copy, out)
    assert code != 0 and words in said, f"must be refused with {words!r}: {said}"


def replace(file, pattern, by):
    text = file.read_text()
    changed = re.sub(pattern, by, text, count=1, flags=re.M)
    assert changed != text, f"{file} has no {pattern!r}"
    file.write_text(changed)


def check_sbom(file, copy):
    def resource(uri):
        content = json.loads((SCHEMAS / uri.rsplit("/", 1)[-1]).read_text())
        return referencing.Resource.from_contents(content)

    schema = json.loads((SCHEMAS / "bom-1.6.SNAPSHOT.schema.json").read_text())
    bom = json.loads(file.read_text())
    registry = referencing.Registry(retrieve=resource)
    jsonschema.Draft7Validator(schema, registry=registry).validate(bom)
    parts = {one["name"]: one for one in bom["components"]}
    for name in LIBRARIES:
        assert name in parts, f"the list of crates has no {name}"
    for name in TESTS_ONLY:
        assert name not in parts, f"{name} is only for tests"
    lock = tomllib.loads((copy / "Cargo.lock").read_text())["package"]
    checksums = {(one["name"], one["version"]): one.get("checksum") for one in lock}
    for one in bom["components"]:
        there = checksums[one["name"], one["version"]]
        assert [{"alg": "SHA-256", "content": there}] == one.get("hashes") or there is None, one
        assert one.get("licenses"), f"{one['name']} has no licence"
    references = {one["ref"] for one in bom["dependencies"]}
    assert references == {one["bom-ref"] for one in bom["components"]} | {bom["metadata"]["component"]["bom-ref"]}
    return len(parts)


def main():
    with tempfile.TemporaryDirectory() as name:
        scratch = pathlib.Path(name)
        copy, out = scratch / "copy", scratch / "out"
        # A copy, because a build may replace it meanwhile; without what only a debugger reads.
        subprocess.run(["strip", "--strip-debug", "-o", scratch / "keepsake", os.environ["KEEPSAKE"]], check=True)
        (scratch / "model").mkdir()
        for file in ["model.onnx", "libonnxruntime.so"]:  # packages.py reads which libraries it needs
            shutil.copy("/bin/true", scratch / "model" / file)
        copy_tree(copy)
        version = tomllib.loads((copy / "Cargo.toml").read_text())["workspace"]["package"]["version"]
        changelog = copy / "CHANGELOG.md"
        replace(changelog, r"^## \[Unreleased\]$", f"## [Unreleased]\n\n## [9.9.9] - 2026-01-01")
        commit(copy)
        refused(copy, out, "CHANGELOG.md: its newest version is 9.9.9")
        replace(changelog, r"^## \[9.9.9\]", f"## [{version}]")
        refused(copy, out, "uncommitted changes")
        chart = copy / "deploy/helm/keepsake/Chart.yaml"
        replace(chart, r"^version: .*$", "version: 9.9.9")
        refused(copy, out, "Chart.yaml: has another version")
        replace(chart, r"^version: .*$", f"version: {version}")
        commit(copy)
        git(copy, "tag", f"v{version}", "HEAD~1")
        refused(copy, out, f"v{version} is released already")
        git(copy, "tag", "--delete", f"v{version}")

        archives = []
        for directory in [out, scratch / "again"]:
            code, said = release(copy, directory)
            assert code == 0, said
            [archive] = directory.glob("*.tar.gz")
            archives.append(archive.read_bytes())
        assert archives[0] == archives[1], "two releases of one commit differ"
        [sums] = out.glob("*.sha256")
        subprocess.run(["sha256sum", "--check", "--quiet", sums.name], cwd=out, check=True)
        [archive] = out.glob("*.tar.gz")
        base = archive.name.removesuffix(".tar.gz")
        with tarfile.open(archive) as tar:
            names = {member.name: member for member in tar}
            for wanted in WANTED:
                assert f"{base}/{wanted}" in names, f"the archive has no {wanted}"
            assert all(member.isfile() or member.isdir() for member in names.values()), "a link is in the archive"
            packed = tar.extractfile(f"{base}/bin/keepsake").read()
            assert packed == (scratch / "keepsake").read_bytes(), "the archive has another program"
            assert tar.extractfile(f"{base}/COMMIT").read().decode().strip() == git(copy, "rev-parse", "HEAD")
        crates = check_sbom(out / f"{base}.cdx.json", copy)
    print(f"release: 4 refusals by name, {len(names)} files in the archive, {crates} crates listed, twice the same bytes")


main()
