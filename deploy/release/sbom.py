#!/usr/bin/env python3
"""Prints a CycloneDX 1.6 list of the crates that the program is built from, with their licences, their
checksums from Cargo.lock and what depends on what. Crates that only tests use are not in it.

    sbom.py COMMIT      SOURCE_DATE_EPOCH is the time; the same commit makes the same bytes
    sbom.py --licences  prints the licence texts of the crates instead, which go with every copy of the program
"""
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import tomllib
import uuid

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUSTC = subprocess.run(["rustc", "-vV"], check=True, capture_output=True, text=True).stdout
TARGET = re.search(r"^host: (.*)$", RUSTC, re.M)[1]
LICENCE_FILE = re.compile(r"(LICEN[CS]E|COPYING|NOTICE|COPYRIGHT)", re.I)


def metadata():
    # With the OpenSSL that deploy/release/portable.sh links in.
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--features", "portable"]
    command += ["--filter-platform", TARGET]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)


def used(nodes, root):
    """Ids of the packages that the program or its build needs, each with those that it needs itself."""
    needs = {
        node["id"]: sorted(
            dependency["pkg"]
            for dependency in node["deps"]
            if any(kind["kind"] != "dev" for kind in dependency["dep_kinds"])
        )
        for node in nodes
    }
    found, ahead = {}, [root]
    while ahead:
        package = ahead.pop()
        if package not in found:
            found[package] = needs[package]
            ahead += needs[package]
    return found


def purl(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package, checksums):
    one = {
        "type": "library",
        "bom-ref": purl(package),
        "name": package["name"],
        "version": package["version"],
        "purl": purl(package),
    }
    if package["license"]:  # older manifests write "MIT/Apache-2.0"
        one["licenses"] = [{"expression": re.sub(r"\s*/\s*", " OR ", package["license"])}]
    checksum = checksums.get((package["name"], package["version"]))
    if checksum:
        one["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    if package["repository"]:
        one["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return one


def licences(packages):
    """The texts, each once, below the crates that have it. Sources in C lie a directory below their crate."""
    crates = {}
    for package in (package for package in packages if package["source"]):
        folder = pathlib.Path(package["manifest_path"]).parent
        files = [file for file in [*folder.iterdir(), *folder.glob("*/*")] if LICENCE_FILE.match(file.name)]
        texts = {file.read_text(errors="replace").strip() for file in files if file.is_file() and file.suffix not in {".rs", ".py"}}
        for text in texts or {"The crate has no file with its licence."}:
            crates.setdefault(text, set()).add(f"{package['name']} {package['version']}, {package['license']}")
    for text, names in sorted(crates.items(), key=lambda entry: (sorted(entry[1]), entry[0])):
        print("=" * 100, *sorted(names), "", text, "", sep="\n")


def main():
    commit = sys.argv[1]
    data = metadata()
    packages = {package["id"]: package for package in data["packages"]}
    [root] = [package["id"] for package in data["packages"] if package["name"] == "keepsake"]
    graph = used(data["resolve"]["nodes"], root)
    if commit == "--licences":
        return licences(packages[one] for one in graph)
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    checksums = {(one["name"], one["version"]): one["checksum"] for one in lock if "checksum" in one}
    program = component(packages[root], checksums) | {"type": "application"}
    libraries = [component(packages[package], checksums) for package in graph if package != root]
    time = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)
    bom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'keepsake:{commit}')}",
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": program,
            "properties": [{"name": "commit", "value": commit}, {"name": "target", "value": TARGET}],
        },
        "components": sorted(libraries, key=lambda one: one["purl"]),
        "dependencies": sorted(
            (
                {"ref": purl(packages[package]), "dependsOn": sorted({purl(packages[one]) for one in needs})}
                for package, needs in graph.items()
            ),
            key=lambda one: one["ref"],
        ),
    }
    json.dump(bom, sys.stdout, indent=1)
    print()


main()
