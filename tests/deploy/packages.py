#!/usr/bin/env python3
"""Installs every package of a release as a user would, and lets it remember a sentence.

Each is installed in a sandbox (bubblewrap) with an empty home and without network, compiler, Rust or
this tree; the files beside each other stand for the registry. Then the installed program serves, its
`mcp` stores a sentence, the service is killed with SIGKILL, and a new one, started in another
directory, must find the sentence by its meaning. The same inputs must make the same bytes.

KEEPSAKE names the program; a release build must also be small enough. TYPESCRIPT names the built client.
PORTABLE=1 wants a wheel that runs on any Linux, PACKAGES=DIR keeps the packages (`make packages`). Exit 4: a package is missing.
"""
import json
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import tomllib

HERE = pathlib.Path(__file__).resolve()
ROOT = HERE.parents[2] if len(HERE.parents) > 2 else None  # None in the sandbox
DIST, HOME = pathlib.Path("/mnt/dist"), pathlib.Path("/home/ada")
READY_SECONDS = 90  # a debug build loads the model in some seconds
SAID, ASKED, ANSWER = "My sister plays the cello.", "Which instrument does my sibling play?", "cello"
MEGABYTES_MAX = 80  # a wheel; the limit of PyPI is 100
GLIBC_MAX = (2, 28)
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"


# --- inside the sandbox ------------------------------------------------------------------------------------------------


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{command}: {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout


def install_wheel():
    run(sys.executable, "-m", "venv", HOME / "venv")
    programs = HOME / "venv/bin"
    run(programs / "pip", "install", "--no-index", "--find-links", DIST, "--disable-pip-version-check", "keepsake-recall")
    return programs


def install_npm():
    files = sorted(DIST.glob("keepsake-recall-*.tgz"))
    run("npm", "install", "--global", "--prefix", HOME / "npm", *files)
    return HOME / "npm/bin"


def install_deb():
    [file] = DIST.glob("*.deb")
    run("dpkg-deb", "--extract", file, HOME / "root")
    return HOME / "root/usr/bin"


def install_archive():
    [file] = DIST.glob("*.tar.gz")
    run("tar", "--extract", "--file", file, "--directory", HOME)
    return HOME / file.name.removesuffix(".tar.gz") / "bin"


class Service:
    def __init__(self, cwd):
        command = ["keepsake", "serve", "--set", "gateway.listen=127.0.0.1:8765"]
        self.process = subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.said, began = b"", time.monotonic()
        while b"explorer: http" not in self.said:
            left = began + READY_SECONDS - time.monotonic()
            ready, _, _ = select.select([self.process.stdout], [], [], max(left, 0))
            got = os.read(self.process.stdout.fileno(), 65536) if ready else b""
            assert got, f"the service is not ready: {self.said.decode()}"
            self.said += got

    def kill(self):
        # The launcher of npm is a process before the program.
        process = self.process.pid
        children = pathlib.Path(f"/proc/{process}/task/{process}/children").read_text().split()
        os.kill(int(children[0]) if children else process, signal.SIGKILL)
        self.process.wait()


class Mcp:
    """The installed `keepsake mcp`, over its standard streams."""

    def __init__(self):
        command = ["keepsake", "mcp", "--user", "ada"]
        self.process = subprocess.Popen(command, cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.last = 0
        client = {"name": "test", "version": "1"}
        self.ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client})
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def send(self, message):
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def ask(self, method, parameters):
        self.last += 1
        self.send({"jsonrpc": "2.0", "id": self.last, "method": method, "params": parameters})
        for line in self.process.stdout:
            answer = json.loads(line)
            if answer.get("id") == self.last:
                assert "result" in answer, answer
                return answer["result"]
        raise AssertionError(f"mcp ended with {self.process.wait()}")

    def call(self, tool, **arguments):
        answer = self.ask("tools/call", {"name": tool, "arguments": arguments})
        assert not answer.get("isError"), answer
        return json.dumps(answer)

    def end(self):
        self.process.stdin.close()
        assert self.process.wait(timeout=30) == 0, "mcp does not end with its client"


def inside(kind):
    """Installs, remembers, and is killed. Prints the seconds until the sentence was stored."""
    began = time.monotonic()
    programs = INSTALL[kind]()
    os.environ["PATH"] = f"{programs}:{os.environ['PATH']}"
    assert pathlib.Path(shutil.which("keepsake")).parent == programs
    assert shutil.which("cargo") is None and shutil.which("rustc") is None
    version = run("keepsake", "--version").split()[-1]
    wrong = subprocess.run(["keepsake", "recall", "--user", "ada", ""], capture_output=True, text=True)
    runbook = re.search(r"see (/\S+RUNBOOK.md)]", wrong.stderr)
    assert runbook and "config-invalid" in pathlib.Path(runbook[1]).read_text(), wrong.stderr
    (HOME / "first").mkdir()
    (HOME / "second").mkdir()
    service = Service(HOME / "first")
    memory = Mcp()
    memory.call("add_memory", text=SAID)
    seconds = time.monotonic() - began
    memory.end()
    service.kill()
    service = Service(HOME / "second")
    memory = Mcp()
    found = memory.call("search_memories", query=ASKED)
    assert ANSWER in found, found
    memory.end()
    if kind == "wheel":
        client = "from keepsake_recall import Http; print(Http('http://127.0.0.1:8765').recall('ada', 'cello')['prompt'])"
        assert ANSWER in run(programs / "python", "-c", client)
        kafka = subprocess.run([programs / "python", "-c", "from keepsake_recall import Kafka"], capture_output=True, text=True)
        assert "pip install confluent-kafka" in kafka.stderr, kafka.stderr
    if kind == "npm":
        client = "import { Keepsake } from 'keepsake-recall';"
        client += "console.log((await new Keepsake({ url: 'http://127.0.0.1:8765' }).recall('ada', 'cello')).prompt);"
        modules = HOME / "npm/lib"
        assert ANSWER in run("node", "--input-type=module", "--eval", client, cwd=modules)
        # The launcher passes a signal on, and the program's exit code back.
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(timeout=30) == 0
        wrong = subprocess.run(["keepsake", "no-such-command"], capture_output=True)
        assert wrong.returncode == 2, wrong
    else:
        service.kill()
    if kind == "archive":
        # As after `cargo install`: the program alone.
        shutil.rmtree(programs.parent / "share/keepsake/model")
        alone = subprocess.run(["keepsake", "serve"], capture_output=True, text=True, timeout=READY_SECONDS)
        assert alone.returncode == 1 and "deploy/model/setup.sh" in alone.stderr, f"compares words in silence: {alone}"
    print(f"packages: {kind}: {version}, a sentence remembered after {seconds:.1f} s, and found after kill -9")


INSTALL = {"wheel": install_wheel, "npm": install_npm, "deb": install_deb, "archive": install_archive}


# --- outside -----------------------------------------------------------------------------------------------------------


def missing(what):
    print(f"packages: missing: {what}", file=sys.stderr)
    sys.exit(4)


def build(program, model, out):
    command = [ROOT / "deploy/release/packages.py", "--program", program, "--model", model]
    command += ["--client", os.environ["TYPESCRIPT"], "--out", out]
    subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
    return {path.name: path.read_bytes() for path in out.iterdir()}


def check_same_bytes(scratch):
    """With small files, because compressing takes most of the time."""
    program, model = scratch / "small", scratch / "model"
    model.mkdir()
    shutil.copy("/bin/true", program)
    shutil.copy("/bin/true", model / "libonnxruntime.so")
    builds = []
    for name in ["one", "two"]:
        os.utime(program, (0, len(builds)))
        builds.append(build(program, model, scratch / name))
    assert builds[0] == builds[1], "two builds of the same inputs differ"


def sandboxed(kind, dist, scratch):
    home = scratch / f"home-{kind}"
    home.mkdir()
    command = ["bwrap", "--unshare-all", "--die-with-parent", "--clearenv", "--ro-bind", "/", "/"]
    for hidden in ["/root", "/home", "/work", "/opt", "/usr/local/cargo", "/usr/local/rustup"]:
        if pathlib.Path(hidden).is_dir():
            command += ["--tmpfs", hidden]
    command += ["--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--tmpfs", "/mnt", "--tmpfs", "/srv"]
    # This interpreter may lie in a home.
    command += ["--ro-bind", sys.base_prefix, sys.base_prefix]
    command += ["--ro-bind", dist, DIST, "--ro-bind", HERE, "/mnt/packages.py", "--bind", home, HOME]
    for name, value in {"HOME": HOME, "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}.items():
        command += ["--setenv", name, value]
    command += ["--unshare-user", "--uid", "1000", "--gid", "1000", "--chdir", "/"]
    interpreter = os.path.realpath(sys.executable)
    subprocess.run([*map(str, command), interpreter, "/mnt/packages.py", kind], check=True)


def check_certificates(program, scratch):
    """OpenSSL that is linked in has no path to the certificates of the system, so the program must look for them. Here
    the system trusts one broker only."""
    key, certificate, options = (scratch / name for name in ["key.pem", "certificate.pem", "tls.toml"])
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    make += ["-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate]
    subprocess.run(make, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(READY_SECONDS)
        broker = f"localhost:{listener.getsockname()[1]}"
        options.write_text(f'kafka.bootstrap_servers = "{broker}"\nkafka.librdkafka."security.protocol" = "ssl"\n')
        command = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--ro-bind", certificate, CERTIFICATES]
        client = subprocess.Popen([*command, program, "topics", "check", "--config", options], stderr=subprocess.DEVNULL)
        try:
            connection, _ = listener.accept()
            # A client that does not trust the certificate sends an alert instead of its first request.
            with context.wrap_socket(connection, server_side=True) as trusted:
                assert trusted.recv(1), "the program closed the connection"
        finally:
            client.kill()
            client.wait()


def audited(wheel):
    """What auditwheel says of a wheel: it looks up each symbol of the C library."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / ".keepsake/tools/zig")}  # by portable.sh
    command = [sys.executable, "-m", "auditwheel", "show", wheel]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout


def check_wheel(dist, is_release):
    [wheel] = dist.glob("*.whl")
    megabytes = wheel.stat().st_size / 1e6
    if is_release:
        assert megabytes <= MEGABYTES_MAX, f"{wheel.name} has {megabytes:.1f} MB"
    tag = re.search(r"manylinux_(\d+)_(\d+)_", wheel.name)
    if os.environ.get("PORTABLE"):
        assert tag and tuple(map(int, tag.groups())) <= GLIBC_MAX, f"{wheel.name} needs more than manylinux_2_28"
        found = audited(wheel)
        assert tag[0].rstrip("_") in found, f"auditwheel finds another tag than that of {wheel.name}: {found}"
    print(f"packages: {wheel.name}, {megabytes:.1f} MB")


def main():
    program = pathlib.Path(os.environ["KEEPSAKE"])
    for tool, package in [("bwrap", "bubblewrap"), ("npm", "npm"), ("objdump", "binutils"), ("dpkg-deb", "dpkg")]:
        if not shutil.which(tool):
            missing(f"{tool}; on Debian: apt-get install {package}")
    commit = ["git", "-C", ROOT, "log", "-1", "--format=%ct"]
    os.environ["SOURCE_DATE_EPOCH"] = subprocess.run(commit, check=True, capture_output=True, text=True).stdout.strip()
    with tempfile.TemporaryDirectory() as name:
        scratch = pathlib.Path(name)
        scratch.chmod(0o755)
        is_release = "release" in program.parts
        # Without what only a debugger reads, a debug build is as quick to pack.
        subprocess.run(["strip", "--strip-debug", "-o", scratch / "keepsake", program], check=True)
        program, dist = scratch / "keepsake", pathlib.Path(os.environ.get("PACKAGES") or scratch / "dist")
        check_same_bytes(scratch)
        build(program, ROOT / ".keepsake/model", dist)
        check_wheel(dist, is_release)
        if os.environ.get("PORTABLE") and pathlib.Path(CERTIFICATES).is_file():
            check_certificates(program, scratch)
            print("packages: the program trusts the certificates of the system")
        for kind in INSTALL:
            sandboxed(kind, dist, scratch)


if len(sys.argv) > 1:
    inside(sys.argv[1])
else:
    main()
