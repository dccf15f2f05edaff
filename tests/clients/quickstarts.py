"""Runs the examples of the clients' pages as a reader would, against the service under test.

An example is a code block below a comment `<!-- run: KIND prints "TEXT" -->`. Addresses and the
user are replaced, so that no example finds what another one has stored. Exit code 4: all examples passed
that could run, and a package is missing for the others.
"""

import os
import re
import subprocess
import sys
import time
import uuid
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.append(str(ROOT / "deploy/clients/python/tests"))
from models import Models  # noqa: E402
WORK = ROOT / ".keepsake" / "clients"
CLIENTS = ["", "python/", "typescript/", "java/", "rust/"]
PAGES = ["README.md", "deploy/book/src/doors.md", *(f"deploy/clients/{name}README.md" for name in CLIENTS)]
EXAMPLE = re.compile(
    r'<!-- run: (\w+)( with the block before,)? prints "([^"\n]+)" -->\n```\w+\n(.*?)```', re.DOTALL
)
BLOCK = re.compile(r"^```\w+\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# Examples that the pages must have, so that a typing error in a comment leaves none out.
EXPECTED = {"kcat": 1, "curl": 3, "python": 6, "typescript": 2, "java": 1, "rust": 1}
LINES_MAX = 30
SECONDS_MAX = 300


class Missing(Exception):
    """A package is not installed; the message names it."""


def tool(name: str) -> None:
    done = subprocess.run([HERE / "tools.sh", name], stderr=subprocess.PIPE, text=True)
    if done.returncode == 4:
        raise Missing(done.stderr.strip())
    assert done.returncode == 0, done.stderr


def shell(code: str, scratch: Path) -> list[str]:
    return ["bash", "-euo", "pipefail", "-c", code]


def kcat(code: str, scratch: Path) -> list[str]:
    tool("kcat")
    return shell(code, scratch)


def python(code: str, scratch: Path) -> list[str]:
    tool("python")
    (scratch / "quickstart.py").write_text(code)
    return [sys.executable, "quickstart.py"]


def typescript(code: str, scratch: Path) -> list[str]:
    tool("node")
    (scratch / "quickstart.ts").write_text(code)
    (scratch / "package.json").write_text('{"type": "module"}')
    modules = scratch / "node_modules"
    modules.mkdir()
    (modules / "keepsake-recall").symlink_to(WORK / "typescript")
    for name in ("@types", "@anthropic-ai"):
        (modules / name).symlink_to(WORK / "typescript" / "node_modules" / name)
    compiler = WORK / "typescript" / "node_modules" / ".bin" / "tsc"
    options = ["--strict", "--skipLibCheck", "--module", "nodenext", "--target", "es2022", "--types", "node"]
    subprocess.run([compiler, *options, "quickstart.ts"], cwd=scratch, check=True)
    return ["node", "quickstart.js"]


def java(code: str, scratch: Path) -> list[str]:
    tool("java")
    starter = WORK / "java" / "spring-boot-starter" / "target"
    classes = f"{scratch}:{starter / 'classes'}:{(starter / 'classpath').read_text().strip()}"
    (scratch / "Quickstart.java").write_text(code)
    subprocess.run(["javac", "-cp", classes, "-d", ".", "Quickstart.java"], cwd=scratch, check=True)
    return ["java", "-cp", classes, "com.example.Quickstart"]


def rust(code: str, scratch: Path) -> list[str]:
    (scratch / "src").mkdir()
    (scratch / "src" / "main.rs").write_text(code)
    crate = ROOT / "deploy" / "clients" / "rust"
    (scratch / "Cargo.toml").write_text(
        '[package]\nname = "quickstart"\nedition = "2024"\n[workspace]\n'
        f'[dependencies]\nkeepsake-recall = {{ path = "{crate}" }}\n'
    )
    # The versions of the client's own lock file, which are built already.
    (scratch / "Cargo.lock").write_text((crate / "Cargo.lock").read_text())
    return ["env", f"CARGO_TARGET_DIR={WORK / 'rust'}", "cargo", "run", "--quiet", "--offline"]


KINDS = {
    "kcat": kcat,
    "curl": shell,
    "python": python,
    "typescript": typescript,
    "java": java,
    "rust": rust,
}


def run(kind: str, expected: str, code: str) -> None:
    scratch = WORK / "quickstarts" / str(uuid.uuid4())
    scratch.mkdir(parents=True)
    user = f"q{uuid.uuid4().hex}"
    here = re.sub(r"\bada\b", user, code)
    here = here.replace("http://localhost:8765", os.environ["KEEPSAKE_URL"])
    here = here.replace("localhost:8765", os.environ["KEEPSAKE_URL"].removeprefix("http://"))
    here = here.replace("localhost:9092", os.environ["KEEPSAKE_BROKERS"])
    command = KINDS[kind](here, scratch)
    packages = f"{WORK / 'package'}:{WORK / 'packages'}"
    environment = {**os.environ, "PYTHONPATH": packages, "LANGSMITH_TRACING": "false"}
    # The examples with a model's client speak with a scripted model.
    models = Models()
    for name, path in (("OPENAI", "/v1"), ("ANTHROPIC", "")):
        environment |= {f"{name}_BASE_URL": models.url + path, f"{name}_API_KEY": "none"}
    done = subprocess.run(
        command,
        cwd=scratch,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS_MAX,
    )
    models.close()
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}"
    assert expected in done.stdout, f"does not print {expected!r}\n{done.stdout}"
    lines = len(code.splitlines())
    assert lines <= LINES_MAX, f"has {lines} lines, and {LINES_MAX} are enough"


def main() -> int:
    found: dict[str, int] = {}
    failed = missing = 0
    for page in PAGES:
        text = (ROOT / page).read_text()
        for example in EXAMPLE.finditer(text):
            kind, follows, expected, code = example.groups()
            if follows:
                code = BLOCK.findall(text[: example.start()])[-1] + code
            found[kind] = found.get(kind, 0) + 1
            began = time.monotonic()
            try:
                run(kind, expected, code)
                print(f"example of {page}, {kind}: {time.monotonic() - began:.1f} s", flush=True)
            except Missing as error:
                missing += 1
                print(f"SKIPPED: example of {page}, {kind}: {error}", flush=True)
            except (AssertionError, subprocess.SubprocessError) as error:
                failed += 1
                print(f"FAILED: example of {page}, {kind}: {error}", flush=True)
    if found != EXPECTED:
        failed += 1
        print(f"the pages have other examples than expected: {found}, not {EXPECTED}")
    return 1 if failed else 4 if missing else 0


sys.exit(main())
