"""Every client has the version of the workspace, because it speaks that version's contract."""

import json
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
CLIENTS = ROOT / "deploy" / "clients"


def versions() -> dict[str, str]:
    def found(path: str, pattern: str) -> str:
        match = re.search(pattern, (CLIENTS / path).read_text(), re.MULTILINE | re.DOTALL)
        return match[1] if match else "none"

    npm = CLIENTS / "typescript"
    lock = json.loads((npm / "package-lock.json").read_text())
    project = tomllib.loads((CLIENTS / "python/pyproject.toml").read_text())["project"]
    crate = tomllib.loads((CLIENTS / "rust/Cargo.toml").read_text())["package"]
    locked = r'name = "keepsake-memory"\nversion = "([^"]+)"'
    parent = r"<artifactId>keepsake-clients</artifactId>\s*<version>([^<]+)<"
    return {
        "python/pyproject.toml": project["version"],
        "python/keepsake_memory/__init__.py": found(
            "python/keepsake_memory/__init__.py", r'^__version__ = "([^"]+)"$'
        ),
        "typescript/package.json": json.loads((npm / "package.json").read_text())["version"],
        "typescript/package-lock.json": lock["version"],
        "typescript/package-lock.json, packages": lock["packages"][""]["version"],
        "java/pom.xml": found("java/pom.xml", parent),
        "java/client/pom.xml": found("java/client/pom.xml", parent),
        "java/spring-boot-starter/pom.xml": found("java/spring-boot-starter/pom.xml", parent),
        "rust/Cargo.toml": crate["version"],
        "rust/Cargo.lock": found("rust/Cargo.lock", locked),
        "java/README.md": found(
            "java/README.md", r"keepsake-spring-boot-starter</artifactId>\s*<version>([^<]+)<"
        ),
    }


def main() -> int:
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    wrong = {name: version for name, version in versions().items() if version != workspace}
    for name, version in wrong.items():
        print(f"deploy/clients/{name} has version {version}, Cargo.toml has {workspace}")
    return 1 if wrong else 0


sys.exit(main())
