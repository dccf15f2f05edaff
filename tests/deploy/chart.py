#!/usr/bin/env python3
"""Renders the Helm chart and checks what comes out, without a cluster.

Each file of deploy/helm/keepsake/ci is linted and rendered; every object must be valid by Kubernetes'
own schemas without an unknown field, and the rendered keepsake.toml must be a configuration that the
program accepts, with exactly the values given. Values that cannot work must be refused by name.

HELM, KEEPSAKE and TOOLS name the two programs and the directory that tools.sh fills.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib

TOOLS = pathlib.Path(os.environ["TOOLS"])
sys.path.insert(0, str(TOOLS / "python"))
import jsonschema  # noqa: E402
import kubernetes_validate  # noqa: E402
import yaml  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy/helm/keepsake"
VERSIONS = ["1.27.0", "1.37.0"]  # the oldest that the chart allows, and the newest with schemas
BROKERS = "config.kafka.bootstrap_servers=kafka:9092"

# Values that must be refused, each with words of the refusal.
REFUSED = {
    "config.kafka.bootstrap_servers=": "config.kafka.bootstrap_servers: is empty",
    "config.kafka.bootstrap_servers=embedded": "the embedded broker serves one process",
    "replicas=7": "7 processes for 6 partitions",
    "replicas=0": "minimum",
    "terminationGracePeriodSeconds=29": "at least 10 more than config.limits.shutdown_ms",
    "config.http.listen=127.0.0.1:1": "config.http.listen: the chart sets it",
    "config.kafka.librdkafka.sasl\\.password=hush": "sasl.password: a ConfigMap shows it",
    "config.kafka.librdkafka.sasl\\.oauthbearer\\.client\\.secret=hush": "a ConfigMap shows it",
    "config.topics.marks_key=hush": "config.topics.marks_key: a ConfigMap shows it",
    "config.auth.tenants.acme.secret=hush": "config.auth.tenants.acme.secret: a ConfigMap shows it",
    "secrets.files.tenants=a-secret": "take another name",
    "secrets.files.gateway=a-secret": "take another name",
    "gateway.ingress.host=memory.example.com": "gateway.ingress.host: no gateway runs",
    "config.gateway.listen=0.0.0.0:1": "config.gateway: the chart sets listen and keys",
    "replica=2": "additional properties 'replica' not allowed",
    "image.digest=sha256:12": "does not match pattern",
}


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def helm(verb, *arguments):
    # The chart contains the alerts by a symbolic link, which helm mentions each time.
    code, out, err = run(os.environ["HELM"], verb, *arguments)
    return code, out, "\n".join(line for line in err.splitlines() if "symbolic link" not in line)


def template(*arguments, version=VERSIONS[-1]):
    return helm("template", "keepsake", CHART, "--kube-version", version, *arguments)


def closed(schema):
    """The schema without unknown fields, as a cluster prunes them."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {name: closed(part) for name, part in schema.items()}
    if isinstance(schema.get("pattern"), str):  # Go allows a flag behind the ^, Python does not
        schema["pattern"] = schema["pattern"].replace("^(?i)", "(?i)^")
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            schema.setdefault("additionalProperties", False)
    return schema


def operator_schemas():
    found = {}
    for file in (TOOLS / "operator").glob("*.yaml"):
        definition = yaml.safe_load(file.read_text())["spec"]
        for version in definition["versions"]:
            schema = closed(version["schema"]["openAPIV3Schema"])
            schema["properties"]["metadata"] = {"type": "object"}
            name = f"{definition['group']}/{version['name']}", definition["names"]["kind"]
            found[name] = schema
    return found


OPERATOR = operator_schemas()


def validate(thing, version):
    schema = OPERATOR.get((thing["apiVersion"], thing["kind"]))
    try:
        if schema:
            jsonschema.validate(thing, schema)
        else:
            kubernetes_validate.validate(thing, version, strict=True)
    except jsonschema.ValidationError as error:
        at = ".".join(str(part) for part in error.absolute_path)
        sys.exit(f"{thing['kind']} on Kubernetes {version}: {at}: {error.message}")


def leaves(table, path=""):
    for name, value in table.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{path}{name}.")
        else:
            yield path + name, value


def merged(below, above):
    both = dict(below)
    for name, value in above.items():
        inner = isinstance(value, dict) and isinstance(both.get(name), dict)
        both[name] = merged(both[name], value) if inner else value
    return both


def check_configuration(toml, values):
    """The program accepts the file, and each value given is the one in effect, from this file."""
    with tempfile.TemporaryDirectory() as scratch:
        for tenant in values["secrets"].get("tenants") or {}:
            pathlib.Path(scratch, "tenants").mkdir(exist_ok=True)
            pathlib.Path(scratch, "tenants", tenant).write_text("k" * 64)
        file = pathlib.Path(scratch, "keepsake.toml")
        # The Secrets are not here; stand-ins for the tenants' keys, which `check` reads, are.
        file.write_text(toml.replace("/run/secrets/keepsake", scratch))
        code, out, err = run(os.environ["KEEPSAKE"], "config", "check", "--config", file)
        assert code == 0, f"keepsake refuses the rendered file: {out}{err}\n{toml}"
        code, out, err = run(os.environ["KEEPSAKE"], "config", "show", "--json", "--config", file)
        assert code == 0, err
        shown = json.loads(out)
    given = dict(leaves(values["config"]))
    # The names of librdkafka's own options have dots, which `leaves` joins as the program does.
    for path, value in given.items():
        there = shown.get(path)
        assert there, f"{path}: no such option is in effect"
        assert there["from"] == str(file), f"{path}: is from {there['from']}"
        in_effect = yaml.safe_load(there["value"].replace(scratch, "/run/secrets/keepsake"))
        assert in_effect == value or str(in_effect) == str(value), f"{path}: {in_effect} is not {value}"
    assert shown["http.listen"]["value"] == '"0.0.0.0:9464"'
    defaults = json.loads(run(os.environ["KEEPSAKE"], "config", "show", "--json")[1])
    is_open = re.compile(r"kafka\.librdkafka\.|(tenants|[a-z]+\.tenants|retain\.kinds)\.")
    for path in shown:
        assert path in defaults or is_open.match(path), f"{path}: no such option is in default.toml"
    return len(given)


def check_rights(pod):
    """The least rights, and the image's user."""
    [container] = pod["containers"]
    image = (ROOT / "deploy/Dockerfile").read_text()
    user = int(re.search(r"^USER (\d+)", image, re.M)[1])
    security = pod["securityContext"]
    assert security["runAsNonRoot"] and security["runAsUser"] == security["fsGroup"] == user
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not pod["automountServiceAccountToken"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def check_gateway(things, values):
    """The gateway runs where its keys are named, behind one port, and nothing else selects its pods."""
    names = {thing["kind"]: thing for thing in things if thing["metadata"]["name"].endswith("-gateway")}
    wanted = values["gateway"]["keys"]["secret"]
    assert bool(names) == bool(wanted), f"keys {wanted!r}, and {names.keys()}"
    if not wanted:
        return
    deployment = names["Deployment"]["spec"]
    pod = deployment["template"]["spec"]
    check_rights(pod)
    [container] = pod["containers"]
    routes = (ROOT / "processors/gateway/routes.rs").read_text()
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"]:
        path = container[probe]["httpGet"]["path"]
        assert f'"{path}"' in routes, f"{probe}: the gateway has no {path}"
    environment = {name["name"]: name.get("value") for name in container["env"]}
    keys = pathlib.PurePosixPath(environment["KEEPSAKE__GATEWAY__KEYS"])
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    [volume] = [volume for volume in pod["volumes"] if volume["name"] == mounts[str(keys.parent)]]
    assert volume["secret"]["secretName"] == wanted
    assert volume["secret"]["items"] == [{"key": values["gateway"]["keys"]["key"], "path": keys.name}]
    assert set(mounts.values()) == {volume["name"] for volume in pod["volumes"]}
    [port] = container["ports"]
    assert environment["KEEPSAKE__GATEWAY__LISTEN"] == f"0.0.0.0:{port['containerPort']}"
    with tempfile.TemporaryDirectory() as scratch:
        file = pathlib.Path(scratch, "keys")
        given = {"KEEPSAKE__GATEWAY__LISTEN": environment["KEEPSAKE__GATEWAY__LISTEN"], "KEEPSAKE__GATEWAY__KEYS": str(file)}
        shown = subprocess.run(
            [os.environ["KEEPSAKE"], "config", "show", "--json"], env={**os.environ, **given}, capture_output=True, text=True
        )
        options = {option["from"] for option in json.loads(shown.stdout).values()}
        assert given.keys() <= options, f"no options of the program: {given.keys() - options}"
    labels = deployment["template"]["metadata"]["labels"]
    [service] = [thing["spec"] for thing in things if thing["kind"] == "Service" and thing is names["Service"]]
    assert service["selector"].items() <= labels.items() and service["ports"][0]["targetPort"] == port["name"]
    [rule] = names["Ingress"]["spec"]["rules"]
    assert rule["http"]["paths"][0]["backend"]["service"] == {
        "name": names["Service"]["metadata"]["name"], "port": {"name": service["ports"][0]["name"]},
    }
    [let_in] = names["NetworkPolicy"]["spec"]["ingress"]
    assert let_in["ports"] == [{"protocol": "TCP", "port": port["name"]}]
    others = [thing for thing in things if thing not in names.values() and "spec" in thing]
    for thing in others:
        selector = thing["spec"].get("selector", thing["spec"].get("podSelector")) or {}
        selected = selector.get("matchLabels", selector)
        if thing["kind"] != "ServiceMonitor" and selected:
            assert not selected.items() <= labels.items(), f"{thing['kind']} selects pods of the gateway"


def check_pod(things, values):
    """The names that image, page and grace period share, and no right too many."""
    stateful = next(thing for thing in things if thing["kind"] == "StatefulSet")["spec"]
    pod = stateful["template"]["spec"]
    check_rights(pod)
    [container] = pod["containers"]
    image = (ROOT / "deploy/Dockerfile").read_text()
    page = (ROOT / "processors/service/run/http.rs").read_text()
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"]:
        path = container[probe]["httpGet"]["path"]
        assert f'.route("{path}"' in page, f"{probe}: the page has no {path}"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    volumes = {volume["name"] for volume in pod["volumes"]}
    claims = {claim["metadata"]["name"] for claim in stateful["volumeClaimTemplates"]}
    assert set(mounts.values()) == volumes | claims, "each volume is mounted, and nothing else"
    volume = re.search(r"^VOLUME (\S+)", image, re.M)[1]
    assert mounts[volume] in claims and values["config"]["store"]["dir"].startswith(volume + "/")
    command = json.loads(re.search(r"^CMD (.*)", image, re.M)[1])
    assert container["args"] == command, f"{container['args']} is not the image's {command}"
    assert pathlib.Path(command[-1]).parent.as_posix() in mounts
    labels = stateful["template"]["metadata"]["labels"]
    # A selector can never change, so it has nothing of a version.
    assert stateful["selector"]["matchLabels"].keys() == {"app.kubernetes.io/name", "app.kubernetes.io/instance"}
    own = [thing for thing in things if not thing["metadata"]["name"].endswith("-gateway")]
    for thing in own:
        selector = thing["spec"].get("selector", thing["spec"].get("podSelector")) if "spec" in thing else None
        if selector and thing["kind"] != "ServiceMonitor":
            wanted = selector.get("matchLabels", selector)
            assert wanted.items() <= labels.items(), f"{thing['kind']} selects no pod: {wanted}"
    for name, option in zip(container.get("env", []), values["secrets"].get("options") or []):
        # The program reads the variable as this option: shown where its origin is the variable.
        environment = {**os.environ, name["name"]: "x" * 40}
        shown = subprocess.run(
            [os.environ["KEEPSAKE"], "config", "show", "--json"], env=environment, capture_output=True, text=True
        )
        origin = json.loads(shown.stdout)[option["option"]]["from"]
        assert origin == name["name"], f"{option['option']}: is from {origin}"


def check_image_configuration():
    """The image's own file has the paths that the chart gives."""
    image = tomllib.loads((ROOT / "deploy/image/keepsake.toml").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())["config"]
    assert image["store"] == values["store"] and image["embedder"] == values["embedder"]
    assert image["http"] == {"listen": "0.0.0.0:9464"}
    cargo = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == cargo, "Chart.yaml has another version than Cargo.toml"


def check_values(file):
    code, out, err = helm("lint", "--strict", "--quiet", CHART, "--kube-version", VERSIONS[-1], "-f", file)
    assert code == 0, f"helm lint {file.name}: {out}{err}"
    values = merged(yaml.safe_load((CHART / "values.yaml").read_text()), yaml.safe_load(file.read_text()))
    for version in VERSIONS:
        code, out, err = template("-f", file, version=version)
        assert code == 0, f"helm template {file.name}: {err}"
        things = [thing for thing in yaml.safe_load_all(out) if thing]
        for thing in things:
            validate(thing, version)
    toml = next(thing for thing in things if thing["kind"] == "ConfigMap")["data"]["keepsake.toml"]
    options = check_configuration(toml, values)
    check_pod(things, values)
    check_gateway(things, values)
    kinds = sorted(thing["kind"] for thing in things)
    print(f"chart: {file.name}: {len(things)} objects ({', '.join(kinds)}), {options} options")
    return set(kinds)


def check_rules():
    """The alerts of the chart are those of deploy/prometheus/rules.yml, with the same job."""
    _, out, _ = template("--set", BROKERS, "--set", "prometheusRule.enabled=true,serviceMonitor.enabled=true")
    things = {thing["kind"]: thing for thing in yaml.safe_load_all(out) if thing}
    rules = yaml.safe_load((ROOT / "deploy/prometheus/rules.yml").read_text())
    assert things["PrometheusRule"]["spec"] == rules
    label = things["ServiceMonitor"]["spec"]["jobLabel"]
    assert things["Service"]["metadata"]["labels"][label] == "keepsake", "the alerts name this job"


def main():
    rendered = set()
    for file in sorted((CHART / "ci").glob("*.yaml")):
        rendered |= check_values(file)
    sources = "".join(file.read_text() for file in (CHART / "templates").glob("*.yaml"))
    unseen = set(re.findall(r"^kind: (\w+)", sources, re.M)) - rendered
    assert not unseen, f"no file of ci/ renders {unseen}"
    for value, words in REFUSED.items():
        code, out, err = template("--set", BROKERS, "--set", value)
        assert code != 0 and words in err, f"--set {value} must be refused with {words!r}: {err or out[:200]}"
    check_rules()
    check_image_configuration()
    print(f"chart: {len(REFUSED)} wrong values refused by name")


main()
