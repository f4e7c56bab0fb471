"""What the tests of metrics share: the metric table, a server that was used, promtool, and what a page says."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request
from pathlib import Path

TABLE = os.environ["METRIC_TABLE"]
BERTH = os.environ["BERTH_BINARY"]
ROOT = Path(__file__).resolve().parents[3]
RULES = ROOT / "configs" / "prometheus" / "rules.yaml"
ALERTS = ROOT / "configs" / "prometheus" / "alerts.yaml"
DASHBOARD = ROOT / "configs" / "grafana" / "berth.json"
RUNBOOK = ROOT / "docs" / "runbook.md"
TIMEOUT_S = 120
SKIPPED = 77

try:
    import yaml
except ImportError:
    print("Python's yaml is not installed (Debian package python3-yaml)")
    sys.exit(1 if os.environ.get("CI") == "true" else SKIPPED)


def require(program):
    """The program's path; skips the test where it is not installed, fails it where CI=true."""
    path = shutil.which(program)
    if path is None:
        if os.environ.get("CI") == "true":
            raise AssertionError(f"{program} is not installed")
        raise unittest.SkipTest(f"{program} is not installed (Debian package prometheus)")
    return path


def metric_table(form):
    """The table of all metrics, as `json` or as `docs`."""
    return subprocess.run([TABLE, form], check=True, capture_output=True, text=True, timeout=TIMEOUT_S).stdout


def promtool(*args, stdin=None):
    done = subprocess.run([require("promtool"), *map(str, args)], input=stdin, capture_output=True, text=True,
                          timeout=TIMEOUT_S)
    return done.returncode, done.stdout + done.stderr


def table():
    """Name -> {type, labels} of every metric family."""
    return {metric["name"]: metric for metric in json.loads(metric_table("json"))}


def labels_of_series():
    """Name as a query writes it -> its labels."""
    series = {}
    for name, metric in table().items():
        if metric["type"] == "histogram":
            series[name + "_bucket"] = {*metric["labels"], "le"}
            series[name + "_sum"] = series[name + "_count"] = {*metric["labels"]}
        else:
            series[name] = {*metric["labels"]}
    return series


SAMPLE = re.compile(r'^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? ([^ ]+)$')
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"(?:,|$)')


def samples(page):
    """(name, labels, value) of every line that is one."""
    for line in page.splitlines():
        if line.startswith("#") or not line:
            continue
        match = SAMPLE.match(line)
        if match is None:
            raise AssertionError(f"not a sample: {line}")
        name, labels, value = match.groups()
        yield name, dict(LABEL.findall(labels or "")), float(value)


POLICY = """version: 1
model: {path: %s, name: tales}
kv_cache: {memory: 1MiB}
compute: {threads: 1}
server: {grpc: "127.0.0.1:0", ops: "127.0.0.1:0", drain_delay: 0s, drain_timeout: 30s}
classes:
  gold: {kv_guarantee: 60%%, default_output_tokens: %d, slo: {time_to_first_token: 60s, inter_token_latency: 60s, objective: 99%%}}
  iron: {kv_guarantee: 20%%, kv_borrowing_limit: 80%%, preemptible: true}
default_class: gold
reload: signal
"""


class Server:
    """`berth serve` on the smallest model, with the classes gold and iron."""

    PROMPT = "Once upon a midnight dreary"

    def __init__(self, *flags):
        model = Path(os.environ["BERTH_SHARED_DIR"]) / "models" / "stories260K-f32.gguf"
        if not model.exists():
            if os.environ.get("CI") == "true":
                raise AssertionError(f"{model} is missing")
            raise unittest.SkipTest(f"{model} is missing")
        self.model = str(model)
        self.folder = tempfile.TemporaryDirectory()
        self.policy = Path(self.folder.name) / "berth.yaml"
        self.write_policy()
        self.process = subprocess.Popen([BERTH, "serve", "--config", str(self.policy), "--json", "--admin", f"unix:{self.folder.name}/admin.sock", *flags],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.log = []
        self.reader = threading.Thread(target=lambda: self.log.extend(self.process.stderr))
        self.reader.start()
        self.info = json.loads(self.process.stdout.readline() or "{}")

    def write_policy(self, output_tokens=7, more=""):
        self.policy.write_text(POLICY % (self.model, output_tokens) + more)

    def reload(self):
        """Asks for the policy file again, and waits until it was read."""
        before = self.value("berth_config_reloads_total")
        self.process.send_signal(signal.SIGHUP)
        self.wait_until(lambda: self.value("berth_config_reloads_total") > before)

    @staticmethod
    def wait_until(condition):
        end = time.monotonic() + TIMEOUT_S
        while not condition():
            if time.monotonic() > end:
                raise AssertionError("it does not come to be")
            time.sleep(0.05)

    def ask(self, *flags):
        """What `berth client generate` says, as JSON; None where the request is refused."""
        done = subprocess.run([BERTH, "client", "generate", "--server", self.info["grpc"], "--prompt", self.PROMPT,
                               "--temperature", "0", "--json", *map(str, flags)],
                              capture_output=True, text=True, timeout=TIMEOUT_S)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def get(self, path):
        """Status and body of a GET on the operators' port."""
        try:
            with urllib.request.urlopen(f"http://{self.info['ops']}{path}", timeout=TIMEOUT_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def page(self):
        return self.get("/metrics")[1]

    def value(self, name, **labels):
        """The sum of the series of this name that have these labels."""
        wanted = {key.rstrip("_"): value for key, value in labels.items()}  # class_ is class
        return sum(value for series, have, value in samples(self.page())
                   if series == name and wanted.items() <= have.items())

    def stop(self):
        """SIGTERM, and the exit code; the log is whole then."""
        if self.process.poll() is None:
            self.process.terminate()
        code = self.process.wait(TIMEOUT_S)
        self.reader.join(TIMEOUT_S)
        self.process.stdout.close()
        self.process.stderr.close()
        self.folder.cleanup()
        return code
