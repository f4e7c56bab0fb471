"""Recording rules, alerts and the dashboard: valid, tested, and about metrics that exist."""

import json
import re
import tempfile
import unittest
from pathlib import Path

from support import ALERTS, DASHBOARD, ROOT, RULES, RUNBOOK, labels_of_series, promtool, yaml

TESTS = Path(__file__).with_name("alerts_test.yaml")
# What Prometheus and service discovery add to a scraped series.
TARGET_LABELS = {"job", "instance", "namespace", "pod"}


def rules_in(path):
    return [rule for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]]


def alerts():
    return [rule for rule in rules_in(ALERTS) if "alert" in rule]


def dashboard_expressions():
    dashboard = json.loads(DASHBOARD.read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            query = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"])
            yield variable["name"], f"sum by ({query[2]}) ({query[1]})"
    for annotation in dashboard["annotations"]["list"]:
        yield annotation["name"], annotation["expr"]


def without_variables(expression):
    expression = re.sub(r"\$__(rate_)?interval", "5m", expression)
    return re.sub(r"\$\w+", ".*", expression)


def all_expressions():
    for rule in rules_in(RULES) + rules_in(ALERTS):
        yield rule.get("alert") or rule["record"], rule["expr"]
    yield from dashboard_expressions()


SELECTOR = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(?:\{([^}]*)\})?")
GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
KEYWORDS = {"and", "or", "unless", "by", "without", "on", "ignoring", "group_left", "group_right", "bool", "offset"}


def selectors(expression):
    """(metric, matched labels) of every vector selector; and the labels that the expression groups by."""
    grouped = {label.strip() for group in GROUPING.findall(expression) for label in group.split(",") if label.strip()}
    bare = GROUPING.sub(" ", re.sub(r"\[[^\]]*\]", "", expression))
    found = []
    for match in SELECTOR.finditer(bare):
        name, matchers = match.groups()
        rest = bare[match.end():].lstrip()
        inside_matchers = bare[:match.start()].count("{") > bare[:match.start()].count("}")
        inside_string = bare[:match.start()].count('"') % 2 == 1
        if inside_matchers or inside_string or name in KEYWORDS or (rest.startswith("(") and matchers is None):
            continue
        # Aggregations may have their grouping, which is gone now, before the parenthesis: those begin with "(".
        found.append((name, {m.strip() for m in re.findall(r"([a-zA-Z_]\w*)\s*(?:=~|!~|!=|=)", matchers or "")}))
    return found, grouped


class Rules(unittest.TestCase):
    def test_promtool_takes_them(self):
        for args in (("check", "rules", "--lint=all", "--lint-fatal", RULES, ALERTS),
                     ("check", "config", ROOT / "configs" / "prometheus" / "prometheus.yaml")):
            code, said = promtool(*args)
            self.assertEqual(code, 0, said)

    def test_alerts_fire_when_they_should_and_only_then(self):
        code, said = promtool("test", "rules", TESTS)
        self.assertEqual(code, 0, said)

    def test_every_alert_is_tested_both_ways(self):
        fires, silent = set(), set()
        for test in yaml.safe_load(TESTS.read_text())["tests"]:
            for case in test.get("alert_rule_test", []):
                if not case["exp_alerts"]:
                    silent.add((case["alertname"], None))
                for alert in case["exp_alerts"]:
                    fires.add((case["alertname"], alert["exp_labels"].get("window")))
        expected = {(rule["alert"], rule["labels"].get("window")) for rule in alerts()}
        self.assertEqual(fires, expected)
        self.assertEqual({name for name, _ in silent}, {rule["alert"] for rule in alerts()})

    def test_every_alert_says_how_bad_it_is_what_it_is_and_where_to_read_on(self):
        headings = {re.sub(r"[^a-z0-9 -]", "", line[3:].lower()).replace(" ", "-")
                    for line in RUNBOOK.read_text().splitlines() if line.startswith("## ")}
        for rule in alerts():
            with self.subTest(alert=rule["alert"]):
                self.assertIn(rule["labels"]["severity"], ("page", "ticket"))
                self.assertTrue(rule["annotations"]["summary"])
                page, anchor = rule["annotations"]["runbook_url"].split("#")
                self.assertEqual(page, "docs/runbook.md")
                self.assertEqual(anchor, rule["alert"].lower())
                self.assertIn(anchor, headings)

    def test_the_runbook_has_no_section_for_an_alert_that_is_gone(self):
        names = {rule["alert"] for rule in alerts()}
        for line in RUNBOOK.read_text().splitlines():
            if line.startswith("## Berth"):
                self.assertIn(line[3:], names)


class Expressions(unittest.TestCase):
    def test_each_names_metrics_and_labels_that_exist(self):
        known = labels_of_series()
        recorded = {rule["record"]: None for rule in rules_in(RULES)}
        for where, expression in all_expressions():
            with self.subTest(where=where, expression=expression):
                found, grouped = selectors(without_variables(expression))
                self.assertTrue(found)
                labels = set(TARGET_LABELS)
                for name, matched in found:
                    if name == "up" or name in recorded:
                        labels |= {"model_name", "class", "slo"}
                        continue
                    self.assertIn(name, known)
                    labels |= known[name]
                    self.assertLessEqual(matched, known[name] | TARGET_LABELS, name)
                self.assertLessEqual(grouped, labels)

    def test_every_recorded_series_is_used(self):
        used = {name for _, expression in all_expressions() for name, _ in selectors(without_variables(expression))[0]}
        for rule in rules_in(RULES):
            self.assertIn(rule["record"], used)

    def test_the_dashboards_are_queries_that_prometheus_understands(self):
        rules = [{"record": f"panel:{i}", "expr": without_variables(expression)}
                 for i, (_, expression) in enumerate(dashboard_expressions())]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "panels.yaml"
            path.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
            code, said = promtool("check", "rules", path)
        self.assertEqual(code, 0, said)

    def test_panels_have_a_place_of_their_own(self):
        taken = set()
        for panel in json.loads(DASHBOARD.read_text())["panels"]:
            place = panel["gridPos"]
            self.assertLessEqual(place["x"] + place["w"], 24)
            cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                     for y in range(place["y"], place["y"] + place["h"])}
            self.assertFalse(cells & taken, panel["title"])
            taken |= cells


if __name__ == "__main__":
    unittest.main(verbosity=2)
