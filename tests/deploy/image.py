#!/usr/bin/env python3
"""Builds the image, checks it, and runs it as a cluster would, without Docker.

The same inputs must make the same bytes, valid by OCI's schemas. The image is unpacked and its
program run in a sandbox (bubblewrap) with the image's user and command, no capability, a read-only
root and a writable store: the service on its embedded broker must become ready, remember a turn
through the gateway, have it after SIGKILL and a new start, and stop on SIGTERM.

KEEPSAKE names the program, TOOLS the directory that tools.sh fills. Exit 4: a package is missing.
"""
import hashlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.request

TOOLS = pathlib.Path(os.environ["TOOLS"])
sys.path.insert(0, str(TOOLS / "python"))
import jsonschema  # noqa: E402
import referencing  # noqa: E402
import referencing.jsonschema  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
READY_SECONDS = 90  # a debug build loads the model in some seconds
STOP_SECONDS = 30
MEGABYTES_MAX = 140  # compressed, as a registry sends it


def missing(what):
    print(f"image: missing: {what}", file=sys.stderr)
    sys.exit(4)


def build(out):
    command = [ROOT / "deploy/image/build.sh", "--program", os.environ["KEEPSAKE"]]
    done = subprocess.run([*command, "--model", ROOT / ".keepsake/model", "--out", out])
    if done.returncode:
        sys.exit(done.returncode)
    return (out / "index.json").read_bytes()


def schema_validator(name):
    """OCI's schemas refer to each other by file name."""

    def resource(uri):
        content = json.loads((TOOLS / "oci" / uri.rsplit("/", 1)[-1]).read_text())
        return referencing.jsonschema.DRAFT4.create_resource(content)

    schema = json.loads((TOOLS / "oci" / name).read_text())
    return jsonschema.Draft4Validator(schema, registry=referencing.Registry(retrieve=resource))


def path_of(layout, descriptor):
    return layout / "blobs" / descriptor["digest"].replace(":", "/")


def blob(layout, descriptor):
    content = path_of(layout, descriptor).read_bytes()
    assert len(content) == descriptor["size"], f"{descriptor}: has {len(content)} bytes"
    digest = hashlib.sha256(content).hexdigest()
    assert f"sha256:{digest}" == descriptor["digest"], f"{descriptor}: has the digest {digest}"
    return content


def checked(layout):
    """The configuration and the layers of a layout that follows the specification."""
    index = json.loads((layout / "index.json").read_text())
    schema_validator("image-index-schema.json").validate(index)
    schema_validator("image-layout-schema.json").validate(json.loads((layout / "oci-layout").read_text()))
    manifest = json.loads(blob(layout, index["manifests"][0]))
    schema_validator("image-manifest-schema.json").validate(manifest)
    config = json.loads(blob(layout, manifest["config"]))
    schema_validator("config-schema.json").validate(config)
    assert len(manifest["layers"]) == len(config["rootfs"]["diff_ids"])
    for layer in manifest["layers"]:
        blob(layout, layer)
    return config, manifest["layers"]


def unpack(layout, layers, root):
    for layer in layers:
        with tarfile.open(path_of(layout, layer)) as tar:
            for member in tar:
                assert not member.name.startswith(("/", "..")), member.name
                assert not member.mode & 0o6000, f"{member.name} would run with another user's rights"
            tar.extractall(root)


class Sandbox:
    def __init__(self, root, config, scratch):
        self.config, self.user = config["config"], config["config"]["User"]
        self.store = scratch / "store"
        self.store.mkdir(mode=0o700)
        [volume] = self.config["Volumes"]
        self.command = []
        if os.geteuid() == 0:
            os.chown(self.store, int(self.user), int(self.user))
            self.command = ["setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups"]
            self.command += ["--bounding-set=-all", "--no-new-privs"]
        self.command += ["bwrap", "--unshare-all", "--share-net", "--uid", self.user, "--gid", self.user]
        self.command += ["--cap-drop", "ALL", "--die-with-parent", "--clearenv"]
        for variable in self.config["Env"]:
            self.command += ["--setenv", *variable.split("=", 1)]
        self.command += ["--ro-bind", root, "/", "--bind", self.store, volume]
        self.command += ["--tmpfs", "/tmp", "--proc", "/proc", "--dev", "/dev", "--chdir", "/"]

    def start(self, *arguments):
        command = [str(part) for part in [*self.command, *self.config["Entrypoint"], *arguments]]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def run(self, *arguments):
        process = self.start(*arguments)
        out, _ = process.communicate(timeout=60)
        return process.returncode, out


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def status(url):
    try:
        return urllib.request.urlopen(url, timeout=5).status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


def program_of(process):
    """bwrap is a process around the program, which is the last of the chain."""
    pid = process.pid
    while children := pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        pid = int(children[0])
    return pid


def check_rights(program, user):
    lines = pathlib.Path(f"/proc/{program}/status").read_text().splitlines()
    fields = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    assert set(fields["Uid"].split()) == {user}, f"the program runs as {fields['Uid']}"
    assert int(fields["CapEff"], 16) == 0 and fields["NoNewPrivs"] == "1", fields


def answer(url, key, body):
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    return json.loads(urllib.request.urlopen(request, timeout=30).read())


def serve(sandbox, key, use, end):
    """Starts the image's command, calls `use` and ends with the signal `end`. Returns the seconds until
    the service was ready and its exit code."""
    page, gateway = (f"127.0.0.1:{free_port()}" for _ in range(2))
    began = time.monotonic()
    here = [f"http.listen={page}", f"gateway.listen={gateway}", "embedded.listen=127.0.0.1:0"]
    process = sandbox.start(*sandbox.config["Cmd"], *(part for one in here for part in ["--set", one]))
    try:
        while status(f"http://{page}/readyz") != 200 or status(f"http://{gateway}/readyz") != 200:
            if process.poll() is not None or time.monotonic() - began > READY_SECONDS:
                process.kill()
                sys.exit(f"image: the service is not ready: {process.communicate()[0]}")
            time.sleep(0.1)
        ready = time.monotonic() - began
        assert status(f"http://{page}/livez") == 200
        use(lambda door, body: answer(f"http://{gateway}/v1/keepsake/{door}", key, body))
        program = program_of(process)
        check_rights(program, sandbox.user)
        os.kill(program, end)
        out, _ = process.communicate(timeout=STOP_SECONDS)
        assert process.returncode == 0 or end == signal.SIGKILL, f"stopped with {process.returncode}: {out}"
        return ready
    finally:
        process.kill()


def remember(call):
    call("turn", {"user": "ada", "content": "I moved to Lisbon last month."})


def recall(call):
    prompt = call("recall", {"user": "ada", "query": "Where do I live?"})["prompt"]
    assert "Lisbon" in prompt, f"after a kill the volume has no memory of it: {prompt!r}"


def main():
    for tool, package in [("bwrap", "bubblewrap"), ("setpriv", "util-linux")]:
        if not shutil.which(tool):
            missing(f"{tool}; on Debian: apt-get install {package}")
    if subprocess.run(["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"], capture_output=True).returncode:
        missing("user namespaces, which this kernel forbids: sysctl kernel.unprivileged_userns_clone=1")
    with tempfile.TemporaryDirectory() as name:
        scratch = pathlib.Path(name)
        scratch.chmod(0o755)  # the image's user must reach its files
        first = build(scratch / "first")
        os.umask(0o077)
        assert first == build(scratch / "second"), "two builds of the same inputs differ"
        config, layers = checked(scratch / "first")
        unpack(scratch / "first", layers, scratch / "root")
        (scratch / "root").chmod(0o755)
        sandbox = Sandbox(scratch / "root", config, scratch)
        code, out = sandbox.run("--version")
        version = config["config"]["Labels"]["org.opencontainers.image.version"]
        assert code == 0 and out.split()[-1] == version, f"--version: {code}: {out}"
        code, out = sandbox.run(*config["config"]["Cmd"])
        assert code == 2 and "keepsake keys new --set gateway.keys=" in out, f"starts without keys: {out}"
        configuration = sandbox.config["Cmd"][1:]
        code, key = sandbox.run("keys", "new", *configuration)
        assert code == 0, f"keys new: {key}"
        key = key.split()[-1]
        code, out = sandbox.run(*config["config"]["Cmd"], "--set", "store.dir=/usr/store")
        assert code != 0 and "Read-only file system" in out, f"writes beside its volume: {out}"
        ready = serve(sandbox, key, remember, signal.SIGKILL)
        serve(sandbox, key, recall, signal.SIGTERM)
        assert {"8765/tcp", "9464/tcp"} <= sandbox.config["ExposedPorts"].keys()
        megabytes = sum(layer["size"] for layer in layers) / 1e6
        # A debug build is larger.
        assert megabytes <= MEGABYTES_MAX or "debug" in os.environ["KEEPSAKE"], f"the image has {megabytes:.0f} MB"
    print(f"image: {megabytes:.0f} MB, reproducible, valid, ready after {ready:.1f} s as user {sandbox.user} on a read-only root")


main()
