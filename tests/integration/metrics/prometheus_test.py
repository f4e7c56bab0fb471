"""A real Prometheus scrapes the operators' port with the project's own configuration and answers queries."""

import json
import re
import shutil
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from support import ALERTS, ROOT, RULES, TIMEOUT_S, Server, require, yaml


class Prometheus:
    """On a free port, its data in a folder that goes with it."""

    def __init__(self, folder, target):
        config = yaml.safe_load((ROOT / "configs" / "prometheus" / "prometheus.yaml").read_text())
        config["global"] = {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"}
        config["scrape_configs"][0]["static_configs"][0]["targets"] = [target]
        for path in (RULES, ALERTS):
            shutil.copy(path, folder)
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
        self.process = subprocess.Popen(
            [require("prometheus"), f"--config.file={folder}/prometheus.yaml", f"--storage.tsdb.path={folder}/data",
             "--web.listen-address=127.0.0.1:0"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.log = []
        self.listening = threading.Event()
        self.address = None
        self.reader = threading.Thread(target=self._read_log)
        self.reader.start()
        if not self.listening.wait(TIMEOUT_S) or self.address is None:
            self.stop()
            raise AssertionError("Prometheus did not start: " + "".join(self.log))

    def _read_log(self):
        for line in self.process.stderr:
            self.log.append(line)
            match = re.search(r'msg="?Listening on"? address=(127\.0\.0\.1:\d+)', line)
            if match:
                self.address = match[1]
                self.listening.set()
        self.listening.set()

    def get(self, path, **query):
        with urllib.request.urlopen(f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(query)}",
                                    timeout=TIMEOUT_S) as answer:
            return json.load(answer)["data"]

    def value_when_there(self, expression):
        """The only series' value, once there is one."""
        end = time.monotonic() + TIMEOUT_S
        while time.monotonic() < end:
            try:
                result = self.get("query", query=expression)["result"]
            except urllib.error.HTTPError as error:
                if error.code != 503:  # still starting
                    raise
                result = []
            if result:
                assert len(result) == 1, result
                return float(result[0]["value"][1])
            time.sleep(0.1)
        raise AssertionError(f"no answer to {expression}: " + "".join(self.log))

    def stop(self):
        self.process.terminate()
        self.process.wait(TIMEOUT_S)
        self.reader.join(TIMEOUT_S)
        self.process.stderr.close()


class Scrape(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        require("prometheus")
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.server = Server()
        cls.addClassCleanup(cls.server.stop)
        cls.answers = [cls.server.ask("--class", "iron", "--max-tokens", 5) for _ in range(3)]
        cls.prometheus = Prometheus(Path(cls.folder.name), cls.server.info["ops"])
        cls.addClassCleanup(cls.prometheus.stop)

    def test_the_target_is_up(self):
        self.assertEqual(self.prometheus.value_when_there('up{job="berth"} == 1'), 1)

    def test_counters_gauges_and_histograms_can_be_asked_for(self):
        ask = self.prometheus.value_when_there
        self.assertEqual(ask('sum(berth_requests_total{class="iron",outcome="ok"})'), len(self.answers))
        self.assertEqual(ask("sum(berth_kv_blocks)"), self.server.info["kv_blocks"])
        self.assertGreater(ask('histogram_quantile(1, sum by (le) (berth_time_to_first_token_seconds_bucket))'), 0)

    def test_recording_rules_give_values(self):
        self.assertAlmostEqual(
            self.prometheus.value_when_there('class:berth_slo_error_budget:ratio{class="gold"}'), 0.01)
        self.assertEqual(self.prometheus.value_when_there('class:berth_requests_waiting:sum{class="iron"}'), 0)

    def test_every_rule_evaluates(self):
        self.prometheus.value_when_there("class:berth_slo_error_budget:ratio{class='gold'}")
        for group in self.prometheus.get("rules")["groups"]:
            for rule in group["rules"]:
                self.assertNotEqual(rule["health"], "err", rule)

    def test_an_alert_that_should_fire_is_on_its_way(self):
        self.server.write_policy(more="shceduler: {}\n")
        self.server.reload()
        self.prometheus.value_when_there('ALERTS{alertname="BerthConfigReloadFailed"}')


if __name__ == "__main__":
    unittest.main(verbosity=2)
