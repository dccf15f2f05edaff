"""Every client has the version of the workspace, because it speaks that version's contract, and no page
names a package of others: PyPI's `keepsake` and `keepsake-memory`, the crate `keepsake`, a Maven group
whose domain is not ours."""

import json
import re
import subprocess
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
    locked = r'name = "keepsake-recall"\nversion = "([^"]+)"'
    parent = r"<artifactId>keepsake-clients</artifactId>\s*<version>([^<]+)<"
    return {
        "python/pyproject.toml": project["version"],
        "python/keepsake_recall/__init__.py": found(
            "python/keepsake_recall/__init__.py", r'^__version__ = "([^"]+)"$'
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
            "java/README.md", r"keepsake-recall-spring-boot-starter</artifactId>\s*<version>([^<]+)<"
        ),
    }


OTHERS = re.compile(
    r"keepsake-memory|keepsake_memory\b|<groupId>dev\.keepsake"
    r"|(cargo|pip|pipx|npm|uv tool) (install|add)( -\S+)* ['\"]?keepsake(?![-\w./])|(uvx|npx)( -\S+)* keepsake(?![-\w./])"
)
# The changelog tells of older names; inside the workspace a crate is called so, and is not published.
NOT_PAGES = {"CHANGELOG.md", "processors/decisions/crates.md"}


def others() -> list[str]:
    listed = ["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard", "*.md", "*.sh", "*.yml"]
    pages = set(subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split()) - NOT_PAGES
    found = []
    for page in sorted(page for page in pages if (ROOT / page).is_file()):
        for number, line in enumerate((ROOT / page).read_text().splitlines(), 1):
            if match := OTHERS.search(line):
                found.append(f"{page}, line {number}: {match[0]} is a package of others; ours is keepsake-recall")
    return found


def main() -> int:
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    wrong = {name: version for name, version in versions().items() if version != workspace}
    for name, version in wrong.items():
        print(f"deploy/clients/{name} has version {version}, Cargo.toml has {workspace}")
    strangers = others()
    print(*strangers, sep="\n", end="\n" if strangers else "")
    return 1 if wrong or strangers else 0


sys.exit(main())
