"""The page of /metrics, as tools and routers read it."""

import unittest

from support import ROOT, labels_of_series, probe, promtool, samples, table


class Page(unittest.TestCase):
    def test_promtool_finds_nothing_to_complain_about(self):
        code, said = promtool("check", "metrics", stdin=probe("page"))
        self.assertEqual((code, said), (0, ""))

    def test_every_metric_of_the_table_is_on_it_with_exactly_its_labels(self):
        known = labels_of_series()
        seen = set()
        for name, labels, _ in samples(probe("page")):
            self.assertIn(name, known)
            self.assertEqual(set(labels), known[name], name)
            seen.add(name)
        self.assertEqual(seen, set(known))

    def test_tenants_are_on_no_histogram(self):
        for name, metric in table().items():
            if metric["type"] == "histogram":
                self.assertNotIn("tenant", metric["labels"], name)

    def test_ratios_of_the_pool_are_one_per_server_and_between_0_and_1(self):
        ratios = [s for s in samples(probe("page")) if s[0] in ("berth_kv_used_ratio", "berth_kv_committed_ratio")]
        self.assertEqual(len(ratios), 2)
        for _, labels, value in ratios:
            self.assertEqual(set(labels), {"model_name"})
            self.assertTrue(0 <= value <= 1)

    def test_no_histogram_has_the_name_of_a_counter(self):
        families = table()
        histograms = {name for name, metric in families.items() if metric["type"] == "histogram"}
        for name in families:
            for suffix in ("_total", "_count", "_sum", "_bucket"):
                self.assertNotIn(name.removesuffix(suffix) if name.endswith(suffix) else None, histograms, name)

    def test_the_documentation_is_the_table(self):
        self.assertEqual((ROOT / "docs" / "metrics.md").read_text(), probe("docs"),
                         "run: build/cpu/bin/metrics_probe docs > docs/metrics.md")


class Router(unittest.TestCase):
    """Reads as the Gateway API inference extension's scraper does: a gauge by its name and, at most, fixed labels; where
    several series match, it could take any."""

    def scraped(self, name):
        matching = [(labels, value) for series, labels, value in samples(probe("page")) if series == name]
        self.assertEqual(len(matching), 1, name)
        labels, value = matching[0]
        self.assertEqual(set(labels), {"model_name"}, name)
        return value

    def test_each_gauge_is_one_series(self):
        self.assertEqual(self.scraped("berth_router_requests_waiting"), 2)
        self.assertEqual(self.scraped("berth_router_requests_running"), 4)
        self.assertEqual(self.scraped("berth_router_kv_usage_ratio"), 0.75)

    def test_the_pools_geometry_is_told_as_labels(self):
        info = [labels for name, labels, _ in samples(probe("page")) if name == "berth_cache_config_info"]
        self.assertEqual(info, [{"model_name": "smollm2", "block_size": "16", "num_gpu_blocks": "100"}])


if __name__ == "__main__":
    unittest.main(verbosity=2)
