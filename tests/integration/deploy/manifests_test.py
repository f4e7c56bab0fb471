"""docker/, configs/kubernetes/ and docs/service_config.json: valid, consistent, and in words that the program knows."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SKIPPED = 77
try:
    import yaml
except ImportError:
    print("Python's yaml is not installed (Debian package python3-yaml)")
    sys.exit(1 if os.environ.get("CI") == "true" else SKIPPED)

ROOT = pathlib.Path(__file__).resolve().parents[3]
DOCKER = ROOT / "docker"
KUBERNETES = ROOT / "configs" / "kubernetes"
BERTH = os.environ["BERTH_BINARY"]
TIMEOUT_S = 60


def load(path):
    return yaml.safe_load(path.read_text())


def run(*arguments, **options):
    return subprocess.run([str(a) for a in arguments], capture_output=True, text=True, timeout=TIMEOUT_S, **options)


def flags_of(*command):
    """The long flags that a command of the program has."""
    return set(re.findall(r"--[a-z][a-z-]*", run(BERTH, *command, "--help").stdout))


def ports_of(policy):
    return {name: int(policy["server"][name].rsplit(":", 1)[1]) for name in ("grpc", "ops")}


def seconds(text):
    return int(re.fullmatch(r"(\d+)s", text).group(1))


def instructions(dockerfile):
    """(word, rest) of each instruction, continued lines joined."""
    text = re.sub(r"\\\n", " ", "\n".join(l for l in dockerfile.read_text().splitlines() if not l.startswith("#")))
    return [tuple(line.split(maxsplit=1)) for line in text.splitlines() if line.strip()]


class Policies(unittest.TestCase):
    def check(self, text):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(text)
            file.flush()
            done = run(BERTH, "check", "--strict", file.name)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_the_images_policy_is_good(self):
        self.check((DOCKER / "config" / "berth.yaml").read_text())

    def test_kubernetes_policy_is_good(self):
        self.check(load(KUBERNETES / "policy.yaml")["data"]["berth.yaml"])

    def test_both_can_be_reached_from_outside_and_agree_on_ports(self):
        image = load(DOCKER / "config" / "berth.yaml")
        cluster = yaml.safe_load(load(KUBERNETES / "policy.yaml")["data"]["berth.yaml"])
        default = load(ROOT / "configs" / "berth.yaml")
        for policy in (image, cluster):
            self.assertEqual(ports_of(policy), ports_of(default))
            for name in ("grpc", "ops"):
                self.assertTrue(policy["server"][name].startswith("0.0.0.0:"), name)
            self.assertTrue(policy["server"]["admin"].startswith("unix:"), "nobody but the container itself")


class Image(unittest.TestCase):
    dockerfile = "Dockerfile"

    def setUp(self):
        self.steps = instructions(DOCKER / self.dockerfile)
        self.last = self.steps[max(i for i, (word, _) in enumerate(self.steps) if word == "FROM"):]

    def of(self, word, steps=None):
        return [rest for step, rest in steps or self.last if step == word]

    def test_every_file_it_names_is_there(self):
        for path in re.findall(r"docker/[\w./-]+", " ".join(rest for _, rest in self.steps)):
            self.assertTrue((ROOT / path).exists(), path)

    def test_its_scripts_can_be_run(self):
        for script in ("build.sh", "install.sh"):
            self.assertTrue(os.access(DOCKER / script, os.X_OK), script)
            done = run("bash", "-n", DOCKER / script)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_the_build_installs_no_more_than_the_project_does(self):
        self.assertIn("cmake/scripts/install-packages.sh build\n", (DOCKER / "build.sh").read_text())

    def test_the_last_stage_has_no_build_tools(self):
        self.assertIn("-slim", self.of("FROM")[0])
        for rest in self.of("RUN") + self.of("COPY"):
            self.assertNotRegex(rest, r"build\.sh|install-packages|cmake|g\+\+|\bmake\b|-dev\b")
        self.assertNotRegex((DOCKER / "install.sh").read_text(), r"install-packages|cmake|g\+\+|-dev\b")

    def test_it_runs_as_a_user_by_number(self):
        user = self.of("USER")[0]
        self.assertRegex(user, r"^[1-9]\d*:[1-9]\d*$")
        uid = user.split(":")[0]
        self.assertIn(f"--uid {uid} ", (DOCKER / "install.sh").read_text())
        pod = load(KUBERNETES / "deployment.yaml")["spec"]["template"]["spec"]
        self.assertEqual(pod["securityContext"]["runAsUser"], int(uid))
        self.assertIn(f"uid={uid},", load(DOCKER / "compose.yaml")["services"]["berth"]["tmpfs"][0])

    def test_what_it_runs_is_a_command_of_the_program(self):
        self.assertEqual(json.loads(self.of("ENTRYPOINT")[0]), ["berth"])
        command, *flags = json.loads(self.of("CMD")[0])
        self.assertEqual(command, "serve")
        self.assertLessEqual({f for f in flags if f.startswith("--")}, flags_of("serve"))
        # The policy file is where the command looks for it.
        self.assertIn(flags[flags.index("--config") + 1], self.of("COPY")[0])

    def test_its_health_check_is_a_command_of_the_program(self):
        check = self.of("HEALTHCHECK")[0]
        words = json.loads(check[check.index("CMD") + 3:])
        self.assertEqual(words[:3], ["berth", "client", "health"])
        self.assertLessEqual({w for w in words if w.startswith("--")}, flags_of("client", "health"))
        # It asks where the image listens.
        default = re.search(r"default 127\.0\.0\.1:(\d+)", run(BERTH, "client", "health", "--help").stdout)
        self.assertEqual(int(default.group(1)), ports_of(load(DOCKER / "config" / "berth.yaml"))["grpc"])

    def test_it_exposes_what_the_policy_listens_on(self):
        ports = {int(port) for port in self.of("EXPOSE")[0].split()}
        self.assertEqual(ports, set(ports_of(load(DOCKER / "config" / "berth.yaml")).values()))


class CudaImage(Image):
    dockerfile = "Dockerfile.cuda"

    def test_what_it_serves_with_is_what_the_cpu_image_does(self):
        cpu = instructions(DOCKER / "Dockerfile")
        for word in ("USER", "EXPOSE", "HEALTHCHECK", "STOPSIGNAL", "ENTRYPOINT", "CMD"):
            self.assertEqual(self.of(word), [rest for step, rest in cpu if step == word], word)

    def test_its_build_asks_for_cuda_and_its_last_stage_has_no_toolkit(self):
        self.assertIn("CUDA=1 ", " ".join(self.of("RUN", self.steps)))
        self.assertNotIn("--from=cuda", " ".join(self.of("COPY")))


class Compose(unittest.TestCase):
    def setUp(self):
        self.services = load(DOCKER / "compose.yaml")["services"]

    def test_every_file_it_mounts_is_there(self):
        for name, service in self.services.items():
            for volume in service.get("volumes", []):
                if volume.startswith("."):
                    path = DOCKER / volume.split(":")[0]
                    self.assertTrue(path.exists(), f"{name}: {volume}")

    def test_nothing_is_open_to_the_network(self):
        for name, service in self.services.items():
            for port in service.get("ports", []):
                self.assertTrue(port.startswith("127.0.0.1:"), f"{name}: {port}")

    def test_berths_flags_are_flags_of_the_program(self):
        command, *flags = self.services["berth"]["command"]
        self.assertEqual(command, "serve")
        self.assertLessEqual({f for f in flags if f.startswith("--")}, flags_of("serve"))

    def test_berth_has_time_to_drain(self):
        server = load(DOCKER / "config" / "berth.yaml")["server"]
        default = load(ROOT / "configs" / "berth.yaml")["server"]
        drain = sum(seconds(server.get(key, default[key])) for key in ("drain_delay", "drain_timeout"))
        self.assertGreater(seconds(self.services["berth"]["stop_grace_period"]), drain)

    def test_prometheus_scrapes_berth_by_its_name_with_our_rules(self):
        config = load(DOCKER / "prometheus" / "prometheus.yaml")
        ops = ports_of(load(DOCKER / "config" / "berth.yaml"))["ops"]
        self.assertEqual(config["scrape_configs"][0]["static_configs"][0]["targets"], [f"berth:{ops}"])
        ours = load(ROOT / "configs" / "prometheus" / "prometheus.yaml")
        self.assertEqual(config["rule_files"], ours["rule_files"])
        self.assertEqual(config["global"], ours["global"])
        mounted = " ".join(self.services["prometheus"]["volumes"])
        for rules in config["rule_files"]:
            self.assertIn(f"../configs/prometheus/{rules}:/etc/prometheus/{rules}:ro", mounted)

    def test_prometheus_takes_its_config(self):
        promtool = shutil.which("promtool")
        if promtool is None:
            self.skipTest("promtool is not installed (Debian package prometheus)")
        with tempfile.TemporaryDirectory() as folder:
            for path in (DOCKER / "prometheus" / "prometheus.yaml", ROOT / "configs" / "prometheus" / "rules.yaml",
                         ROOT / "configs" / "prometheus" / "alerts.yaml"):
                shutil.copy(path, folder)
            done = run(promtool, "check", "config", pathlib.Path(folder) / "prometheus.yaml")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_grafana_finds_prometheus_and_the_dashboard(self):
        source = load(DOCKER / "grafana" / "datasource.yaml")["datasources"][0]
        self.assertEqual(source["type"], "prometheus")
        host, port = re.fullmatch(r"http://(\w+):(\d+)", source["url"]).groups()
        self.assertIn(host, self.services)
        self.assertTrue(any(p.endswith(f":{port}") for p in self.services[host]["ports"]))
        folder = load(DOCKER / "grafana" / "dashboards.yaml")["providers"][0]["options"]["path"]
        self.assertIn(f"../configs/grafana/berth.json:{folder}/berth.json:ro", self.services["grafana"]["volumes"])


class Kubernetes(unittest.TestCase):
    def setUp(self):
        self.deployment = load(KUBERNETES / "deployment.yaml")
        self.pod = self.deployment["spec"]["template"]["spec"]
        self.container = self.pod["containers"][0]
        self.policy = yaml.safe_load(load(KUBERNETES / "policy.yaml")["data"]["berth.yaml"])

    def test_kustomization_lists_every_object(self):
        listed = set(load(KUBERNETES / "kustomization.yaml")["resources"])
        objects = {p.name for p in KUBERNETES.glob("*.yaml") if "kind" in load(p) and p.name != "kustomization.yaml"}
        self.assertEqual(listed, objects)

    def test_selectors_select_the_pods(self):
        labels = self.deployment["spec"]["template"]["metadata"]["labels"]
        self.assertLessEqual(self.deployment["spec"]["selector"]["matchLabels"].items(), labels.items())
        self.assertLessEqual(load(KUBERNETES / "service.yaml")["spec"]["selector"].items(), labels.items())

    def test_ports_are_those_of_the_policy(self):
        ports = {p["name"]: p["containerPort"] for p in self.container["ports"]}
        self.assertEqual(ports, ports_of(self.policy))
        for port in load(KUBERNETES / "service.yaml")["spec"]["ports"]:
            self.assertEqual(port["port"], ports[port["targetPort"]])
        annotations = self.deployment["spec"]["template"]["metadata"]["annotations"]
        self.assertEqual(int(annotations["prometheus.io/port"]), ports["ops"])

    def test_flags_are_flags_of_the_program(self):
        command, *flags = self.container["args"]
        self.assertEqual(command, "serve")
        self.assertLessEqual({f for f in flags if f.startswith("--")}, flags_of("serve"))

    def test_the_policy_is_mounted_as_a_folder_so_that_it_reloads(self):
        config = self.container["args"][self.container["args"].index("--config") + 1]
        mount = next(m for m in self.container["volumeMounts"] if m["name"] == "policy")
        self.assertEqual(mount["mountPath"], os.path.dirname(config))
        self.assertNotIn("subPath", mount)
        volume = next(v for v in self.pod["volumes"] if v["name"] == "policy")
        policy = load(KUBERNETES / "policy.yaml")
        self.assertEqual(volume["configMap"]["name"], policy["metadata"]["name"])
        self.assertIn(os.path.basename(config), policy["data"])
        self.assertNotEqual(self.policy.get("reload", "watch"), "signal")

    def test_what_the_policy_names_is_mounted(self):
        mounts = {m["name"]: m["mountPath"] for m in self.container["volumeMounts"]}
        self.assertEqual(set(mounts), {v["name"] for v in self.pod["volumes"]})
        self.assertTrue(self.policy["model"]["path"].startswith(mounts["models"] + "/"))
        self.assertTrue(self.policy["server"]["admin"].startswith("unix:" + mounts["run"] + "/"))

    def test_probes_ask_the_operators_port(self):
        paths = {probe: self.container[probe]["httpGet"]["path"]
                 for probe in ("startupProbe", "livenessProbe", "readinessProbe")}
        self.assertEqual(paths, {"startupProbe": "/readyz", "livenessProbe": "/livez", "readinessProbe": "/readyz"})
        source = (ROOT / "src" / "telemetry" / "ops_server.cc").read_text()
        for probe, path in paths.items():
            self.assertIn(f'"{path}"', source)
            self.assertEqual(self.container[probe]["httpGet"]["port"], "ops")

    def test_a_pod_has_time_to_drain(self):
        grace = self.pod["terminationGracePeriodSeconds"]
        self.assertEqual(grace, 60)
        server = self.policy["server"]
        self.assertLess(seconds(server["drain_delay"]) + seconds(server["drain_timeout"]), grace)
        # Routers have to have seen that it is not ready before it refuses.
        readiness = self.container["readinessProbe"]
        self.assertLessEqual(readiness["periodSeconds"] * readiness["failureThreshold"], seconds(server["drain_delay"]))

    def test_the_autoscaler_reads_a_metric_that_there_is(self):
        scaler = load(KUBERNETES / "autoscaler.yaml")["spec"]
        self.assertEqual(scaler["scaleTargetRef"]["name"], self.deployment["metadata"]["name"])
        metric = scaler["metrics"][0]["pods"]["metric"]["name"]
        self.assertEqual(metric, "berth_pressure_ratio")
        self.assertIn(f"| `{metric}` | gauge |", (ROOT / "docs" / "metrics.md").read_text())
        rule = load(KUBERNETES / "prometheus-adapter.yaml")["rules"]["custom"][0]
        self.assertEqual(rule["name"]["as"], metric)
        self.assertTrue(rule["seriesQuery"].startswith(metric + "{"))

    def test_kubectl_makes_one_list_of_them(self):
        kubectl = shutil.which("kubectl")
        if kubectl is None:
            self.skipTest("kubectl is not installed")
        done = run(kubectl, "kustomize", KUBERNETES)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(list(yaml.safe_load_all(done.stdout))), 4)


class ServiceConfig(unittest.TestCase):
    def test_it_retries_as_the_documentation_says(self):
        config = json.loads((ROOT / "docs" / "service_config.json").read_text())
        method = config["methodConfig"][0]
        self.assertEqual(method["name"], [{"service": "berth.v1.Inference"}])
        policy = method["retryPolicy"]
        self.assertEqual(set(policy["retryableStatusCodes"]), {"UNAVAILABLE", "RESOURCE_EXHAUSTED"})
        self.assertLessEqual(policy["maxAttempts"], 5)
        self.assertGreater(config["retryThrottling"]["maxTokens"], 0)
        # `berth client generate` has the same number.
        help_text = run(BERTH, "client", "generate", "--help").stdout
        retries = re.search(r"--retries N.*?default\s+(\d+)", help_text, re.DOTALL)
        self.assertEqual(int(retries.group(1)) + 1, policy["maxAttempts"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
