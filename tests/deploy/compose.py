#!/usr/bin/env python3
"""Checks deploy/compose.yaml as Compose reads it, without Docker.

COMPOSE, the reader of the Compose specification, refuses unknown keys and wrong types. References
to services, volumes and configs are compared here; broken copies show that both work. Then: every
file that is named is there, each KEEPSAKE__ variable is an option of the program, and the published
ports stay on this machine.

COMPOSE, KEEPSAKE and TOOLS name the two programs and the directory that tools.sh fills.
"""
import json
import os
import pathlib
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILE = ROOT / "deploy/compose.yaml"
BREAKS = {
    "stop_grace_period:": "stop_grace_periods:",
    "depends_on: { kafka:": "depends_on: { kafcat:",
    'volumes: ["keepsake:': 'volumes: ["keepsakes:',
    "source: rules,": "source: rule,",
    "cap_drop: [ALL]": "cap_drop: ALL",
    "key: { condition:": "keys: { condition:",
}


def read(file):
    command = [os.environ["COMPOSE"], "-format", "json", file]
    # Compose takes relative paths from the directory of the file, this reader from its own.
    return subprocess.run([str(part) for part in command], cwd=FILE.parent, capture_output=True, text=True)


def problem(file):
    """The first fault of the file, or None."""
    done = read(file)
    if done.returncode:
        return done.stderr + done.stdout
    project = json.loads(done.stdout)
    for name, service in project["services"].items():
        named = [
            ("services", service.get("depends_on", {}).keys()),
            ("volumes", {v["source"] for v in service.get("volumes", []) if v["type"] == "volume"}),
            ("configs", {config["source"] for config in service.get("configs", [])}),
        ]
        for kind, names in named:
            missing = set(names) - project[kind].keys()
            if missing:
                return f"{name}: {missing} is not among the {kind}"
    return None


def check_environment(name, service):
    variables = {
        variable: value
        for variable, value in (service.get("environment") or {}).items()
        if variable.startswith("KEEPSAKE__")
    }
    shown = subprocess.run(
        [os.environ["KEEPSAKE"], "config", "show", "--json"],
        env={**os.environ, **variables}, capture_output=True, text=True,
    )
    options = json.loads(shown.stdout)
    plain = json.loads(subprocess.run([os.environ["KEEPSAKE"], "config", "show", "--json"], capture_output=True).stdout)
    for variable in variables:
        [path] = [path for path, option in options.items() if option["from"] == variable]
        assert path in plain, f"{name}: {variable} is no option of keepsake"
    return len(variables)


def check_gateway(services):
    """All doors are open, each to this machine only, and the gateway asks for the key that `key` made."""
    ports = {port["target"]: name for name, service in services.items() for port in service.get("ports", [])}
    assert ports.get(8765) == "gateway", "no service publishes HTTP, MCP and the explorer"
    gateway, key = services["gateway"], services["key"]
    keys = gateway["environment"]["KEEPSAKE__GATEWAY__KEYS"]
    assert keys == key["environment"]["KEEPSAKE__GATEWAY__KEYS"] and gateway["volumes"] == key["volumes"]
    with tempfile.TemporaryDirectory() as scratch:
        environment = {**os.environ, **key["environment"], "KEEPSAKE__GATEWAY__KEYS": f"{scratch}/keys"}
        make = [os.environ["KEEPSAKE"], *key["command"]]
        first, second = (subprocess.run(make, env=environment, capture_output=True, text=True) for _ in range(2))
        assert first.returncode == 0 and first.stdout.startswith("ksk_"), f"no key: {first}"
        assert second.returncode == 0 and not second.stdout, f"a second start makes a second key: {second}"
    help = subprocess.run([os.environ["KEEPSAKE"], *gateway["command"], "--help"], capture_output=True)
    assert help.returncode == 0, f"the program has no command {gateway['command']}"


def main():
    assert problem(FILE) is None, f"{FILE.name}: {problem(FILE)}"
    project = json.loads(read(FILE).stdout)
    variables = 0
    for name, service in project["services"].items():
        variables += check_environment(name, service)
        if "build" in service:
            build = service["build"]
            assert (pathlib.Path(build["context"]) / build["dockerfile"]).is_file(), f"{name}: no {build}"
            assert service["read_only"] and service["cap_drop"] == ["ALL"], f"{name}: has more rights than it needs"
        for port in service.get("ports", []):
            assert port["host_ip"] == "127.0.0.1", f"{name}: port {port} is open to the network"
    check_gateway(project["services"])
    assert variables, "no service of compose.yaml sets an option of keepsake"
    for name, config in project["configs"].items():
        assert pathlib.Path(config["file"]).is_file(), f"configs.{name}: there is no {config['file']}"
    text = FILE.read_text()
    with tempfile.TemporaryDirectory() as scratch:
        for right, wrong in BREAKS.items():
            assert right in text, f"compose.yaml no longer has {right!r}"
            broken = pathlib.Path(scratch, "compose.yaml")
            broken.write_text(text.replace(right, wrong))
            assert problem(broken), f"accepted: {wrong!r}"
    print(f"compose: {len(project['services'])} services, {len(project['configs'])} files, {len(BREAKS)} breaks refused")


main()
