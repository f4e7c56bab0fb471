"""The page of /metrics of a server that was used, as tools, routers and operators read it."""

import re
import unittest

from support import ROOT, Server, labels_of_series, metric_table, promtool, samples, table

SERVER = None
ANSWERS = []


def setUpModule():
    global SERVER
    SERVER = Server()
    unittest.addModuleCleanup(SERVER.stop)
    if "ops" not in SERVER.info:
        raise AssertionError("the server did not start: " + "".join(SERVER.log))
    ANSWERS.extend(SERVER.ask(*flags) for flags in ([], ["--class", "gold"], ["--class", "iron", "--max-tokens", 20]))
    refused = [SERVER.ask("--class", "bronze"), SERVER.ask("--max-tokens", 1000)]
    assert None not in ANSWERS and refused == [None, None], (ANSWERS, refused, SERVER.log)


class Page(unittest.TestCase):
    def test_promtool_finds_nothing_to_complain_about(self):
        code, said = promtool("check", "metrics", stdin=SERVER.page())
        self.assertEqual((code, said), (0, ""))

    def test_every_metric_of_the_table_is_on_it_with_exactly_its_labels(self):
        known = labels_of_series()
        seen = set()
        for name, labels, _ in samples(SERVER.page()):
            self.assertIn(name, known)
            self.assertEqual(set(labels), known[name], name)
            seen.add(name)
        self.assertEqual(seen, set(known))

    def test_tenants_are_on_no_histogram(self):
        for name, metric in table().items():
            if metric["type"] == "histogram":
                self.assertNotIn("tenant", metric["labels"], name)

    def test_ratios_of_the_pool_are_one_per_server_and_between_0_and_1(self):
        ratios = [s for s in samples(SERVER.page()) if s[0] in ("berth_kv_used_ratio", "berth_kv_committed_ratio")]
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
        self.assertEqual((ROOT / "docs" / "metrics.md").read_text(), metric_table("docs"),
                         "run: build/cpu/bin/metric_table docs > docs/metrics.md")


class Counts(unittest.TestCase):
    def test_each_request_is_counted_once_with_its_class_its_tenant_and_its_end(self):
        total = "berth_requests_total"
        self.assertEqual(SERVER.value(total), 5)
        self.assertEqual(SERVER.value(total, outcome="ok"), 3)
        self.assertEqual(SERVER.value(total, class_="gold", tenant="default", outcome="ok"), 2)
        self.assertEqual(SERVER.value(total, class_="iron", tenant="default", outcome="ok"), 1)
        self.assertEqual(SERVER.value(total, class_="other", outcome="rejected", reason="unknown_class"), 1)
        self.assertEqual(SERVER.value(total, class_="gold", outcome="rejected", reason="request_too_large"), 1)

    def test_totals_are_what_the_callers_were_told(self):
        usages = [answer["usage"] for answer in ANSWERS]
        for name, key in (("berth_prompt_tokens_total", "prompt_tokens"), ("berth_output_tokens_total", "output_tokens"),
                          ("berth_useful_tokens_total", "output_tokens"), ("berth_prefix_cache_hits_total", "cached_tokens")):
            self.assertEqual(SERVER.value(name), sum(usage[key] for usage in usages), name)
        billed = sum(usage["kv_block_seconds"] for usage in usages)
        self.assertGreater(billed, 0)
        self.assertAlmostEqual(SERVER.value("berth_kv_block_seconds_total", kind="reserved"), billed, places=5)

    def test_latencies_are_counted_for_each_token(self):
        tokens = [answer["usage"]["output_tokens"] for answer in ANSWERS]
        self.assertEqual(SERVER.value("berth_time_to_first_token_seconds_count"), len(tokens))
        self.assertEqual(SERVER.value("berth_inter_token_latency_seconds_count"), sum(tokens) - len(tokens))
        self.assertEqual(SERVER.value("berth_e2e_request_latency_seconds_count"), len(tokens))
        self.assertEqual(SERVER.value("berth_slo_requests_total", class_="gold", slo="ttft", result="met"), 2)

    def test_steps_and_their_time_are_counted(self):
        self.assertGreaterEqual(SERVER.value("berth_step_seconds_count"), max(a["usage"]["output_tokens"] for a in ANSWERS))
        self.assertGreater(SERVER.value("berth_step_host_gap_seconds_count"), 0)
        busy = SERVER.value("berth_accelerator_busy_seconds_total")
        self.assertGreater(busy, 0)
        self.assertAlmostEqual(SERVER.value("berth_accelerator_seconds_total"), busy, places=6)

    def test_calls_are_counted_by_method_and_status(self):
        # The client streams.
        method = "berth.v1.Inference/GenerateStream"
        self.assertEqual(SERVER.value("grpc_server_call_started_total", grpc_method=method), 5)
        ended = "grpc_server_call_duration_seconds_count"
        self.assertEqual(SERVER.value(ended, grpc_method=method, grpc_status="OK"), 3)
        self.assertEqual(SERVER.value(ended, grpc_method=method, grpc_status="INVALID_ARGUMENT"), 2)

    def test_nothing_is_left_once_all_has_ended(self):
        for name in ("berth_requests_running", "berth_requests_queued", "berth_requests_preempted",
                     "berth_kv_reserved_unspent_blocks", "berth_class_kv_used_blocks"):
            self.assertEqual(SERVER.value(name), 0, name)
        self.assertEqual(SERVER.value("berth_kv_blocks", state="held"), 0)
        self.assertGreater(SERVER.value("berth_kv_blocks", state="cached"), 0)
        self.assertEqual(SERVER.value("berth_kv_blocks"), SERVER.info["kv_blocks"])


class Operators(unittest.TestCase):
    def test_probes_answer(self):
        self.assertEqual(SERVER.get("/livez"), (200, "ok\n"))
        self.assertEqual(SERVER.get("/readyz"), (200, "ok\n"))

    def test_the_build_is_told(self):
        build = [labels for name, labels, _ in samples(SERVER.page()) if name == "berth_build_info"]
        self.assertEqual(len(build), 1)
        self.assertEqual(build[0]["version"], SERVER.info["version"])
        self.assertEqual(build[0]["revision"], SERVER.info["revision"])
        self.assertEqual(build[0]["backend"], SERVER.info["backend"])

    def test_a_reload_is_counted_and_the_policy_in_force_named(self):
        def in_force():
            return [labels["hash"] for name, labels, _ in samples(SERVER.page()) if name == "berth_config_info"]

        self.assertEqual(in_force(), [SERVER.info["config_sha256"]])
        SERVER.write_policy(output_tokens=9)
        SERVER.reload()
        self.assertEqual(SERVER.value("berth_config_reloads_total", result="success"), 1)
        self.assertEqual(SERVER.value("berth_config_last_reload_successful"), 1)
        changed = in_force()
        self.assertNotEqual(changed, [SERVER.info["config_sha256"]])
        SERVER.write_policy(more="shceduler: {}\n")
        SERVER.reload()
        self.assertEqual(SERVER.value("berth_config_reloads_total", result="failure"), 1)
        self.assertEqual(SERVER.value("berth_config_last_reload_successful"), 0)
        self.assertEqual(in_force(), changed)


class Router(unittest.TestCase):
    """Reads as the Gateway API inference extension's scraper does: a gauge by its name and, at most, fixed labels; where
    several series match, it could take any."""

    def scraped(self, name):
        matching = [(labels, value) for series, labels, value in samples(SERVER.page()) if series == name]
        self.assertEqual(len(matching), 1, name)
        labels, value = matching[0]
        self.assertEqual(labels, {"model_name": "tales"}, name)
        return value

    def test_each_gauge_is_one_series(self):
        self.assertEqual(self.scraped("berth_router_requests_waiting"), 0)
        self.assertEqual(self.scraped("berth_router_requests_running"), 0)
        self.assertEqual(self.scraped("berth_router_kv_usage_ratio"), 0)

    def test_the_pools_geometry_is_told_as_labels(self):
        info = [labels for name, labels, _ in samples(SERVER.page()) if name == "berth_cache_config_info"]
        self.assertEqual(info, [{"model_name": "tales", "block_size": "16", "num_gpu_blocks": str(SERVER.info["kv_blocks"])}])


class TypeLines(unittest.TestCase):
    def test_each_family_says_once_what_it_is(self):
        told = re.findall(r"^# TYPE (\S+) (\S+)$", SERVER.page(), re.MULTILINE)
        self.assertEqual(dict(told), {name: metric["type"] for name, metric in table().items()})
        self.assertEqual(len(told), len(dict(told)))


if __name__ == "__main__":
    unittest.main(verbosity=2)
