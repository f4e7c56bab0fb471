#include "config/policy_file.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "policy_cases.h"

namespace berth {
namespace {

using test::Case;

const Case kWrongKeys[] = {
    {"a key misspelt",
     "version: 1\nshceduler: {}\n",
     {"p.yaml:2:1: error: unknown key \"shceduler\"; did you mean scheduler?"}},
    {"a key misspelt below",
     "version: 1\nserver: {drain_timout: 1s}\n",
     {"p.yaml:2:10: error: server: unknown key \"drain_timout\"; did you mean drain_timeout?"}},
    {"a key that belongs elsewhere",
     "version: 1\nclasses: {interactive: {kv_guarantee: 1, max_wait: 1s}}\n",
     {"p.yaml:2:42: error: classes.interactive: unknown key \"max_wait\"; it belongs at "
      "classes.<class>.queue.max_wait"}},
    {"a section that belongs elsewhere",
     "version: 1\nslo: {}\n",
     {"p.yaml:2:1: error: unknown key \"slo\"; it belongs at classes.<class>.slo"}},
    {"a key nobody knows",
     "version: 1\nserver: {frobnicate: 1}\n",
     {"p.yaml:2:10: error: server: unknown key \"frobnicate\"; known are: grpc, ops, admin, tls, max_message_size, "
      "max_metadata_size, max_streams_per_connection, max_memory, max_connection_age, "
      "drain_delay, drain_timeout, write_timeout, max_queued_requests, max_queued_tokens, trusted_identity, "
      "admin_subjects"}},
    {"a flag of vLLM's",
     "version: 1\nmax_num_seqs: 8\n",
     {"p.yaml:2:1: error: unknown key \"max_num_seqs\"; that is vLLM's name, did you mean "
      "scheduler.max_running_sequences?"}},
    {"a flag of vLLM's as it is typed",
     "version: 1\n--gpu-memory-utilization: 0.9\n",
     {"p.yaml:2:1: error: unknown key \"--gpu-memory-utilization\"; that is vLLM's name, did you mean kv_cache.memory "
      "(written as a share, such as 90%)?"}},
    {"a flag of vLLM's that needs no key",
     "version: 1\nserver: {enable-prefix-caching: true}\n",
     {"p.yaml:2:10: error: server: unknown key \"enable-prefix-caching\"; that is vLLM's, and needs no key here (the "
      "prefix cache is always on)"}},
    {"a key not served yet",
     "version: 1\nserver: {http: 127.0.0.1:8434}\n",
     {"p.yaml:2:10: error: server.http: the OpenAI HTTP API is not served yet; take the key out"}},
    {"a key twice",
     "version: 1\ndefault_class: interactive\ndefault_class: batch\n",
     {"p.yaml:3:1: error: \"default_class\" is there twice, first in line 2; keep one"}},
    {"a class twice",
     "version: 1\nclasses:\n  interactive: {kv_guarantee: 1}\n  interactive: {kv_guarantee: 2}\n",
     {"p.yaml:4:3: error: classes: \"interactive\" is there twice, first in line 3; keep one"}},
    {"a dotted key",
     "version: 1\nserver.grpc: unix:a\n",
     {"p.yaml:2:1: error: unknown key \"server.grpc\"; write grpc within server"}},
    {"a section that is a list",
     "version: 1\nserver: [grpc]\n",
     {"p.yaml:2:1: error: server: is a list; a map of keys is wanted"}},
    {"a section that is one value",
     "version: 1\nserver: yes\n",
     {"p.yaml:2:1: error: server: is one value; a map of keys is wanted"}},
    {"a class that is a list",
     "version: 1\nclasses: {interactive: [1]}\n",
     {"p.yaml:2:11: error: classes.interactive: is a list; a map of keys is wanted"}},
    {"a class with a bad name",
     "version: 1\nclasses: {interactive: {kv_guarantee: 1}, \"a b\": {}}\n",
     {"p.yaml:2:43: error: classes: \"a b\" must be a name: 1 to 64 letters, digits, '_' and '-'"}},
    {"a tenant with a bad name",
     "version: 1\ntenants: {\"a b\": {}}\n",
     {"p.yaml:2:11: error: tenants: \"a b\" must be a name: 1 to 128 letters, digits and any of _-.:@/+"}},
    {"a share for a class that is not there",
     "version: 1\nscheduler: {prefill_min_share: {batsh: 10%}}\n",
     {"p.yaml:2:33: error: scheduler.prefill_min_share: no class is named \"batsh\"; did you mean batch?"}},
};

const Case kWrongValues[] = {
    {"a key without a value",
     "version: 1\nserver: {grpc: }\n",
     {"p.yaml:2:10: error: server.grpc: has no value; give a text, or take the key out"}},
    {"a list for one value",
     "version: 1\nserver: {grpc: [a]}\n",
     {"p.yaml:2:10: error: server.grpc: is a list; give a text"}},
    {"one value for a list",
     "version: 1\nserver: {admin_subjects: CN=a}\n",
     {"p.yaml:2:10: error: server.admin_subjects: is one value; give a list of texts, such as [a, b]"}},
    {"yes for a switch",
     "version: 1\ncompute: {float32: yes}\n",
     {"p.yaml:2:11: error: compute.float32: \"yes\" is not true or false"}},
    {"a quoted switch",
     "version: 1\ncompute: {float32: \"true\"}\n",
     {"p.yaml:2:11: error: compute.float32: \"true\" is a text; take the quotes away"}},
    {"a fraction for a whole number",
     "version: 1\nscheduler: {max_running_sequences: 1.5}\n",
     {"p.yaml:2:13: error: scheduler.max_running_sequences: \"1.5\" is not a whole number from 1 to 65536"}},
    {"a quoted number",
     "version: 1\nscheduler: {max_running_sequences: \"8\"}\n",
     {"p.yaml:2:13: error: scheduler.max_running_sequences: \"8\" is a text; take the quotes away"}},
    {"a number with leading zeros",
     "version: 1\nscheduler: {max_running_sequences: 010}\n",
     {"p.yaml:2:13: error: scheduler.max_running_sequences: \"010\" is not a whole number from 1 to 65536"}},
    {"a number in hexadecimal",
     "version: 1\nscheduler: {max_running_sequences: 0x10}\n",
     {"p.yaml:2:13: error: scheduler.max_running_sequences: \"0x10\" is not a whole number from 1 to 65536"}},
    {"zero where one is least",
     "version: 1\nscheduler: {max_running_sequences: 0}\n",
     {"p.yaml:2:13: error: scheduler.max_running_sequences: \"0\" is not a whole number from 1 to 65536"}},
    {"a number beyond its range",
     "version: 1\nscheduler: {max_running_sequences: 65537}\n",
     {"p.yaml:2:13: error: scheduler.max_running_sequences: \"65537\" is not a whole number from 1 to 65536"}},
    {"a number beyond 64 bits",
     "version: 1\nscheduler: {max_running_sequences: 99999999999999999999}\n",
     {"p.yaml:2:13: error: scheduler.max_running_sequences: \"99999999999999999999\" is not a whole number from 1 to "
      "65536"}},
    {"a number or none",
     "version: 1\nserver: {max_queued_requests: 0}\n",
     {"p.yaml:2:10: error: server.max_queued_requests: \"0\" is not a whole number from 1 to 1000000, or none"}},
    {"a weight that is not a number",
     "version: 1\ntenants: {default: {weight: .nan}}\n",
     {"p.yaml:2:21: error: tenants.default.weight: \".nan\" is not a number above 0 and at most 1000000"}},
    {"an infinite weight",
     "version: 1\ntenants: {default: {weight: inf}}\n",
     {"p.yaml:2:21: error: tenants.default.weight: \"inf\" is not a number above 0 and at most 1000000"}},
    {"a weight of zero",
     "version: 1\ntenants: {default: {weight: 0}}\n",
     {"p.yaml:2:21: error: tenants.default.weight: \"0\" is not a number above 0 and at most 1000000"}},
    {"a negative weight",
     "version: 1\ntenants: {default: {weight: -1}}\n",
     {"p.yaml:2:21: error: tenants.default.weight: \"-1\" is not a number above 0 and at most 1000000"}},
    {"a time without a unit",
     "version: 1\nserver: {drain_delay: 5}\n",
     {"p.yaml:2:10: error: server.drain_delay: \"5\" is no time; write a number and a unit, such as 500ms, 2s or "
      "1m30s"}},
    {"a time of an unknown unit",
     "version: 1\nserver: {drain_delay: 5 sec}\n",
     {"p.yaml:2:10: error: server.drain_delay: \"5 sec\" is no time; write a number and a unit, such as 500ms, 2s or "
      "1m30s"}},
    {"control characters in a quantity",
     "version: 1\nserver: {drain_delay: \"2\\rs\"}\nkv_cache: {memory: \"1\\eG\"}\n",
     {"p.yaml:2:10: error: server.drain_delay: \"2?s\" is no time; write a number and a unit, such as 500ms, 2s or "
      "1m30s",
      "p.yaml:3:12: error: kv_cache.memory: a size's unit is one of KiB, MiB, GiB, TiB, kB, MB, GB, TB or B, not "
      "\"?G\""}},
    {"a negative time",
     "version: 1\nserver: {drain_delay: -5s}\n",
     {"p.yaml:2:10: error: server.drain_delay: \"-5s\" is no time; write a number and a unit, such as 500ms, 2s or "
      "1m30s"}},
    {"a time beyond its range",
     "version: 1\nserver: {drain_delay: 2h}\n",
     {"p.yaml:2:10: error: server.drain_delay: \"2h\" is not a time from 0s to 1h"}},
    {"a time beyond any range",
     "version: 1\nserver: {drain_delay: 999999999999d}\n",
     {"p.yaml:2:10: error: server.drain_delay: \"999999999999d\" is too long a time; at most 365d"}},
    {"a size without a unit",
     "version: 1\nserver: {max_message_size: 4096}\n",
     {"p.yaml:2:10: error: server.max_message_size: a size needs a unit, such as 2GiB or 512MiB, and \"4096\" has "
      "none"}},
    {"a size of an unknown unit",
     "version: 1\nserver: {max_message_size: 4mib}\n",
     {"p.yaml:2:10: error: server.max_message_size: a size's unit is one of KiB, MiB, GiB, TiB, kB, MB, GB, TB or B, "
      "not \"mib\""}},
    {"a size beyond its range",
     "version: 1\nserver: {max_message_size: 2GiB}\n",
     {"p.yaml:2:10: error: server.max_message_size: \"2GiB\" is not a size from 1KiB to 1GiB"}},
    {"a size below its range",
     "version: 1\nserver: {max_message_size: 1KB}\n",
     {"p.yaml:2:10: error: server.max_message_size: a size's unit is one of KiB, MiB, GiB, TiB, kB, MB, GB, TB or B, "
      "not \"KB\""}},
    {"memory without a unit",
     "version: 1\nkv_cache: {memory: 90}\n",
     {"p.yaml:2:12: error: kv_cache.memory: \"90\" has no unit; give a size (2GiB) or a share (40%)"}},
    {"no memory",
     "version: 1\nkv_cache: {memory: 0}\n",
     {"p.yaml:2:12: error: kv_cache.memory: \"0\" is not a size (2GiB) or a share (40%), or auto"}},
    {"more memory than there is",
     "version: 1\nkv_cache: {memory: 101%}\n",
     {"p.yaml:2:12: error: kv_cache.memory: \"101%\" is more than all of it; at most 100%"}},
    {"blocks where a quantity is a word",
     "version: 1\nclasses: {interactive: {kv_guarantee: much}}\n",
     {"p.yaml:2:25: error: classes.interactive.kv_guarantee: \"much\" is not blocks (128), a size (2GiB) or a share "
      "(40%)"}},
    {"a guarantee of an unknown unit",
     "version: 1\nclasses: {interactive: {kv_guarantee: 2gib}}\n",
     {"p.yaml:2:25: error: classes.interactive.kv_guarantee: a size's unit is one of KiB, MiB, GiB, TiB, kB, MB, GB, "
      "TB or B, not \"gib\""}},
    {"a negative guarantee",
     "version: 1\nclasses: {interactive: {kv_guarantee: -5}}\n",
     {"p.yaml:2:25: error: classes.interactive.kv_guarantee: \"-5\" is not blocks (128), a size (2GiB) or a share "
      "(40%)"}},
    {"a share that is not a number",
     "version: 1\nclasses: {interactive: {kv_guarantee: nan%}}\n",
     {"p.yaml:2:25: error: classes.interactive.kv_guarantee: \"nan%\" is not blocks (128), a size (2GiB) or a share "
      "(40%)"}},
    {"a share with too many decimals",
     "version: 1\nclasses: {interactive: {kv_guarantee: 33.33333%}}\n",
     {"p.yaml:2:25: error: classes.interactive.kv_guarantee: \"33.33333%\" is no share; write a number and %, such as "
      "60% or 12.5%"}},
    {"more blocks than a pool can have",
     "version: 1\nclasses: {interactive: {kv_guarantee: 2147483648}}\n",
     {"p.yaml:2:25: error: classes.interactive.kv_guarantee: \"2147483648\" is more blocks than a pool can have; at "
      "most 2147483647"}},
    {"more bytes than there can be",
     "version: 1\nclasses: {interactive: {kv_guarantee: 99999TiB}}\n",
     {"p.yaml:2:25: error: classes.interactive.kv_guarantee: a size is at most 8192TiB, not \"99999TiB\""}},
    {"an objective of all requests",
     "version: 1\nclasses: {interactive: {kv_guarantee: 1, slo: {objective: 100%}}}\n",
     {"p.yaml:2:48: error: classes.interactive.slo.objective: \"100%\" is not a share from 0.0001% to 99.9999%"}},
    {"an objective without a unit",
     "version: 1\nclasses: {interactive: {kv_guarantee: 1, slo: {objective: 0.99}}}\n",
     {"p.yaml:2:48: error: classes.interactive.slo.objective: \"0.99\" is no share; write a number and %, such as 60% "
      "or 12.5%"}},
    {"a word that is not among the words",
     "version: 1\nclasses: {interactive: {kv_guarantee: 1, overload: drop}}\n",
     {"p.yaml:2:42: error: classes.interactive.overload: \"drop\" is not one of: reject, queue, shed_lowest"}},
    {"a type that is not served",
     "version: 1\nkv_cache: {dtype: fp8}\n",
     {"p.yaml:2:12: error: kv_cache.dtype: \"fp8\" is not one of: auto, bf16, int8, float32"}},
    {"an address without a port",
     "version: 1\nserver: {grpc: 127.0.0.1}\n",
     {"p.yaml:2:10: error: server.grpc: \"127.0.0.1\" must be HOST:PORT, [IPV6]:PORT or unix:PATH"}},
    {"a port beyond the last",
     "version: 1\nserver: {grpc: 127.0.0.1:65536}\n",
     {"p.yaml:2:10: error: server.grpc: \"127.0.0.1:65536\" must be HOST:PORT, [IPV6]:PORT or unix:PATH"}},
    {"a bare IPv6 address",
     "version: 1\nserver: {grpc: ::1:8433}\n",
     {"p.yaml:2:10: error: server.grpc: \"::1:8433\" must be HOST:PORT, [IPV6]:PORT or unix:PATH"}},
    {"an empty path", "version: 1\nmodel: {path: \"\"}\n", {"p.yaml:2:9: error: model.path: \"\" must not be empty"}},
    {"a model name with a line break",
     "version: 1\nmodel: {name: \"a\\nb\"}\n",
     {"p.yaml:2:9: error: model.name: \"a?b\" must be 1 to 128 printable ASCII characters"}},
    {"a list with a hole",
     "version: 1\nserver: {admin_subjects: [CN=a, , CN=b]}\n",
     {"p.yaml:2:33: error: server.admin_subjects[1]: is nothing; a list of texts is wanted"}},
    {"a list with a map in it",
     "version: 1\nserver: {admin_subjects: [{a: 1}]}\n",
     {"p.yaml:2:27: error: server.admin_subjects[0]: is a map; a list of texts is wanted"}},
    {"a list with a text twice",
     "version: 1\nserver: {admin_subjects: [CN=a, CN=a]}\n",
     {"p.yaml:2:33: error: server.admin_subjects[1]: \"CN=a\" is there twice; keep one"}},
    {"an API key that is a text",
     "version: 1\ntenants: {default: {api_key_sha256: [abc]}}\n",
     {"p.yaml:2:38: error: tenants.default.api_key_sha256[0]: is one value; give {id: NAME, sha256: HASH}"}},
    {"an API key without a hash",
     "version: 1\ntenants: {default: {api_key_sha256: [{id: a}]}}\n",
     {"p.yaml:2:38: error: tenants.default.api_key_sha256[0]: sha256 is missing; give {id: NAME, sha256: HASH}"}},
    {"an API key without an id",
     "version: 1\ntenants: {default: {api_key_sha256: [{sha256: "
     "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef}]}}\n",
     {"p.yaml:2:38: error: tenants.default.api_key_sha256[0]: id is missing; give {id: NAME, sha256: HASH}"}},
    {"an API key with an unknown key",
     "version: 1\ntenants: {default: {api_key_sha256: [{id: a, sha256: "
     "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef, amdin: true}]}}\n",
     {"p.yaml:2:120: error: tenants.default.api_key_sha256[0]: unknown key \"amdin\"; did you mean admin?"}},
    {"an API key with a key twice",
     "version: 1\ntenants: {default: {api_key_sha256: [{id: a, id: b, sha256: "
     "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef}]}}\n",
     {"p.yaml:2:46: error: tenants.default.api_key_sha256[0].id: is there twice; keep one"}},
    {"an API key itself instead of its hash",
     "version: 1\ntenants: {default: {api_key_sha256: [{id: a, sha256: s3cret}]}}\n",
     {"p.yaml:2:46: error: tenants.default.api_key_sha256[0].sha256: the value must be the SHA-256 of the key: 64 "
      "lower-case hexadecimal digits"}},
};

TEST(PolicyFile, TellsWhichKeyWasMeantAndWhere) {
  for (const Case& c : kWrongKeys) test::ExpectFindings(c, test::ParseFindings(c.yaml));
}

TEST(PolicyFile, TellsWhatEachWrongValueShouldBe) {
  for (const Case& c : kWrongValues) test::ExpectFindings(c, test::ParseFindings(c.yaml));
}

}  // namespace
}  // namespace berth
