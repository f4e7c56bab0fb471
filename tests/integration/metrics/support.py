"""What the tests of metrics share: the probe program, promtool, and what a page says."""

import json
import os
import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

PROBE = os.environ["METRICS_PROBE"]
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


def probe(what):
    return subprocess.run([PROBE, what], check=True, capture_output=True, text=True, timeout=TIMEOUT_S).stdout


def promtool(*args, stdin=None):
    done = subprocess.run([require("promtool"), *map(str, args)], input=stdin, capture_output=True, text=True,
                          timeout=TIMEOUT_S)
    return done.returncode, done.stdout + done.stderr


def table():
    """Name -> {type, labels} of every metric family."""
    return {metric["name"]: metric for metric in json.loads(probe("table"))}


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
