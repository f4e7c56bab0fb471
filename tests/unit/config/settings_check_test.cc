#include "config/settings_check.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "policy_cases.h"

namespace berth {
namespace {

using test::Case;

const Case kContradictions[] = {
    {"no class", "version: 1\nclasses: {}\n", {"p.yaml:2:1: error: classes: at least one class is needed"}},
    {"a block size that is no power of two",
     "version: 1\nkv_cache: {block_tokens: 24}\n",
     {"p.yaml:2:12: error: kv_cache.block_tokens: 24 is no power of two; write 16 or 32"}},
    {"fewer tokens in a step than sequences",
     "version: 1\nscheduler: {max_running_sequences: 64, max_batched_tokens: 63}\n",
     {"p.yaml:2:40: error: scheduler.max_batched_tokens: 63 is less than max_running_sequences (64), so that not every "
      "running sequence could decode in a step; raise it"}},
    {"a default class that is not there",
     "version: 1\ndefault_class: interactiv\n",
     {"p.yaml:2:1: error: default_class: no class is named \"interactiv\"; did you mean interactive?"}},
    {"a default class that the classes lack",
     "version: 1\nclasses: {gold: {kv_guarantee: 50%, kv_borrowing_limit: 50%, preemptible: true}}\n",
     {"p.yaml:1:1: error: default_class: no class is named \"interactive\"; known are: gold"}},
    {"shares of more than a step",
     "version: 1\nscheduler: {prefill_min_share: {interactive: 60%, batch: 50%}}\n",
     {"p.yaml:2:13: error: scheduler.prefill_min_share: the shares add up to 110%; at most 100%"}},
    {"a default output beyond the class's",
     "version: 1\nclasses: {interactive: {kv_guarantee: 50%, kv_borrowing_limit: 50%, preemptible: true, "
     "max_output_tokens: 100}}\n",
     {"p.yaml:2:11: error: classes.interactive.default_output_tokens: 256 is more than max_output_tokens (100); lower "
      "it"}},
    {"an output as long as the sequence",
     "version: 1\nclasses: {interactive: {kv_guarantee: 50%, kv_borrowing_limit: 50%, preemptible: true, "
     "max_sequence_tokens: 4096, max_output_tokens: 4096}}\n",
     {"p.yaml:2:115: warning: classes.interactive.max_output_tokens: 4096 can never be asked for, as prompt and output "
      "together have max_sequence_tokens (4096); lower it"}},
    {"a default output as long as the sequence",
     "version: 1\nclasses: {interactive: {kv_guarantee: 50%, kv_borrowing_limit: 50%, preemptible: true, "
     "max_sequence_tokens: 256}}\n",
     {"p.yaml:2:11: warning: classes.interactive.default_output_tokens: 256 is always cut, as prompt and output "
      "together have max_sequence_tokens (256); lower it"}},
    {"a queue smaller than one ordinary request",
     "version: 1\nclasses: {interactive: {kv_guarantee: 50%, kv_borrowing_limit: 50%, preemptible: true, queue: "
     "{max_tokens: 256}}}\n",
     {"p.yaml:2:96: error: classes.interactive.queue.max_tokens: 256 is less than one request with "
      "default_output_tokens (257 with its prompt), so none is ever taken; raise it"}},
    {"a queue smaller than the longest request",
     "version: 1\nclasses: {interactive: {kv_guarantee: 50%, kv_borrowing_limit: 50%, preemptible: true, "
     "max_sequence_tokens: 4096, queue: {max_tokens: 4095}}}\n",
     {"p.yaml:2:123: warning: classes.interactive.queue.max_tokens: 4095 is less than one request of "
      "max_sequence_tokens (4096), which is never taken; raise it"}},
    {"a deadline before the longest wait",
     "version: 1\nclasses: {interactive: {kv_guarantee: 50%, kv_borrowing_limit: 50%, preemptible: true, queue: "
     "{max_wait: 5s}, deadline: {default: 5s}}}\n",
     {"p.yaml:2:122: warning: classes.interactive.deadline.default: 5s ends every request before queue.max_wait (5s) "
      "can; raise it or lower that"}},
    {"a deadline before the objective",
     "version: 1\nclasses: {interactive: {kv_guarantee: 50%, kv_borrowing_limit: 50%, preemptible: true, queue: "
     "{max_wait: 1s}, deadline: {default: 2s}, slo: {time_to_first_token: 3s}}}\n",
     {"p.yaml:2:122: warning: classes.interactive.deadline.default: 2s leaves no time beyond slo.time_to_first_token "
      "(3s); raise it or lower that"}},
    {"max_preemptions of what is never preempted",
     "version: 1\nclasses: {interactive: {kv_guarantee: 100%, max_preemptions: 2}}\n",
     {"p.yaml:2:45: warning: classes.interactive.max_preemptions: has no effect without preemptible: true; take it out "
      "or set that"}},
    {"lending of nothing",
     "version: 1\nclasses: {interactive: {kv_borrowing_limit: 100%, kv_lending_limit: 10%, preemptible: true}}\n",
     {"p.yaml:2:51: warning: classes.interactive.kv_lending_limit: has no effect without kv_guarantee; take it out or "
      "set that"}},
    {"an objective of nothing",
     "version: 1\nclasses: {interactive: {kv_guarantee: 50%, kv_borrowing_limit: 50%, preemptible: true, slo: "
     "{objective: 99.9%}}}\n",
     {"p.yaml:2:94: warning: classes.interactive.slo.objective: has no effect without slo.time_to_first_token or "
      "slo.inter_token_latency; take it out or set that"}},
    {"useful tokens that nothing asks for",
     "version: 1\nclasses: {interactive: {kv_guarantee: 50%, kv_borrowing_limit: 50%, preemptible: true, deadline: "
     "{useful_tokens: 8}}}\n",
     {"p.yaml:2:99: warning: classes.interactive.deadline.useful_tokens: has no effect without deadline.require: "
      "useful_output; take it out or set that"}},
    {"useful tokens beyond the output",
     "version: 1\nclasses: {interactive: {kv_guarantee: 50%, kv_borrowing_limit: 50%, preemptible: true, "
     "max_output_tokens: 300, deadline: {require: useful_output, useful_tokens: 301}}}\n",
     {"p.yaml:2:147: warning: classes.interactive.deadline.useful_tokens: 301 is more than max_output_tokens (300), so "
      "the whole output counts; lower it"}},
    {"shedding without a bound",
     "version: 1\nclasses: {interactive: {kv_guarantee: 50%, kv_borrowing_limit: 50%, preemptible: true, overload: "
     "shed_lowest}}\n",
     {"p.yaml:2:88: warning: classes.interactive.overload: shed_lowest sheds nothing without "
      "server.max_queued_requests or server.max_queued_tokens; set one of them"}},
    {"an objective name in two classes",
     "version: 1\nclasses:\n  interactive: {kv_guarantee: 50%, objectives: [chat]}\n  batch: {kv_guarantee: 50%, "
     "objectives: [chat]}\n",
     {"p.yaml:4:30: error: classes.batch.objectives: \"chat\" already means class interactive; keep it in one class"}},
    {"a class that no tenant may use",
     "version: 1\nclasses:\n  interactive: {kv_guarantee: 50%}\n  batch: {kv_guarantee: 50%}\ntenants: {default: "
     "{classes: [interactive]}}\n",
     {"p.yaml:4:3: warning: classes.batch: no tenant may use this class, and what it is guaranteed is kept for nobody; "
      "name it in a tenant's classes or take it out"}},
    {"queues that never fill the server's",
     "version: 1\nserver: {max_queued_requests: 128}\n",
     {"p.yaml:2:10: warning: server.max_queued_requests: 128 is never reached, as the classes' own queue.max_requests "
      "add up to 128; lower it or take it out"}},
    {"a server queue smaller than one request",
     "version: 1\nserver: {max_queued_tokens: 256}\n",
     {"p.yaml:2:10: error: server.max_queued_tokens: 256 is less than one request of class interactive with its "
      "default_output_tokens (257 with its prompt), so none is ever taken; raise it",
      "p.yaml:2:10: error: server.max_queued_tokens: 256 is less than one request of class batch with its "
      "default_output_tokens (257 with its prompt), so none is ever taken; raise it"}},
    {"a class with the name of the rest",
     "version: 1\nclasses: {other: {kv_guarantee: 100%}}\ndefault_class: other\n",
     {"p.yaml:2:11: error: classes.other: the name is taken: metrics put requests of no known class under it; choose "
      "another"}},
    {"a tenant with the name of the rest",
     "version: 1\ntenants: {default: {}, other: {}}\n",
     {"p.yaml:2:24: error: tenants.other: the name is taken: metrics put all tenants beyond their bound under it; "
      "choose another"}},
    {"a tenant with an unknown class",
     "version: 1\ntenants: {default: {}, acme: {classes: [batches]}}\n",
     {"p.yaml:2:31: error: tenants.acme.classes: no class is named \"batches\"; did you mean batch?"}},
    {"a tenant without a class",
     "version: 1\ntenants: {default: {}, acme: {classes: []}}\n",
     {"p.yaml:2:31: error: tenants.acme.classes: an empty list allows no class; name one, or take the key out for "
      "all"}},
    {"a default tenant that may not use the default class",
     "version: 1\ntenants: {default: {classes: [batch]}, acme: {}}\n",
     {"p.yaml:2:21: warning: tenants.default.classes: leaves out default_class (interactive), so a request that names "
      "neither tenant nor class is refused; add it"}},
    {"tenants without a default and without keys",
     "version: 1\ntenants: {acme: {max_kv: 40%}}\n",
     {"p.yaml:2:1: warning: tenants: without API keys anybody may call as any tenant, and one that is not listed has "
      "the limits of default, which is not listed and so has none; list it"}},
    {"a burst without a rate",
     "version: 1\ntenants: {default: {}, acme: {burst_tokens: 1000}}\n",
     {"p.yaml:2:31: warning: tenants.acme.burst_tokens: has no effect without tokens_per_minute; take it out or set "
      "that"}},
    {"a burst smaller than one request",
     "version: 1\ntenants: {default: {}, acme: {tokens_per_minute: 6000, burst_tokens: 256, classes: [batch]}}\n",
     {"p.yaml:2:56: warning: tenants.acme.burst_tokens: 256 is less than one request of class batch with its "
      "default_output_tokens (257 with its prompt), which is never taken; raise burst_tokens"}},
    {"a rate smaller than one request",
     "version: 1\ntenants: {default: {}, acme: {tokens_per_minute: 100, classes: [batch]}}\n",
     {"p.yaml:2:31: warning: tenants.acme.tokens_per_minute: 100 is less than one request of class batch with its "
      "default_output_tokens (257 with its prompt), which is never taken; raise burst_tokens"}},
    {"an API key's id in two tenants",
     "version: 1\ntenants: {a: {api_key_sha256: [{id: k, sha256: "
     "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef}]}, b: {api_key_sha256: [{id: k, sha256: "
     "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210}]}}\n",
     {"p.yaml:2:121: error: tenants.b.api_key_sha256: the id \"k\" is there twice; every API key needs its own"}},
    {"an API key in two tenants",
     "version: 1\ntenants: {a: {api_key_sha256: [{id: k, sha256: "
     "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef}]}, b: {api_key_sha256: [{id: l, sha256: "
     "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef}]}}\n",
     {"p.yaml:2:121: error: tenants.b.api_key_sha256: the keys \"k\" and \"l\" have the same hash; make one of them "
      "anew"}},
    {"the hash of an empty API key",
     "version: 1\ntenants: {a: {api_key_sha256: [{id: k, sha256: "
     "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855}]}}\n",
     {"p.yaml:2:15: error: tenants.a.api_key_sha256: \"k\" is the hash of an empty key; make one"}},
    {"a subject of two tenants",
     "version: 1\nserver: {tls: {certificate: c, key: k, client_ca: a}}\ntenants: {a: {subjects: [CN=a]}, b: "
     "{subjects: [CN=a]}}\n",
     {"p.yaml:3:38: error: tenants.b.subjects: \"CN=a\" already speaks for tenant a; keep it in one tenant"}},
    {"a trusted key that is not there",
     "version: 1\nserver: {trusted_identity: {key_ids: [gateway]}}\n",
     {"p.yaml:2:29: error: server.trusted_identity.key_ids: no API key has the id \"gateway\"; add it to a tenant or "
      "take it out"}},
    {"a certificate without its key",
     "version: 1\nserver: {tls: {certificate: c}}\n",
     {"p.yaml:2:10: error: server.tls: key is missing beside certificate"}},
    {"a key without its certificate",
     "version: 1\nserver: {tls: {key: k}}\n",
     {"p.yaml:2:10: error: server.tls: certificate is missing beside key"}},
    {"client certificates without TLS",
     "version: 1\nserver: {tls: {client_ca: a}}\n",
     {"p.yaml:2:16: error: server.tls.client_ca: client certificates need TLS; set certificate and key"}},
    {"subjects without client certificates",
     "version: 1\nserver: {admin_subjects: [CN=a], trusted_identity: {subjects: [CN=b]}}\ntenants: {a: {subjects: "
     "[CN=c]}}\n",
     {"p.yaml:2:10: warning: server.admin_subjects: matches nobody without server.tls.client_ca; set that",
      "p.yaml:2:53: warning: server.trusted_identity.subjects: matches nobody without server.tls.client_ca; set that",
      "p.yaml:3:15: warning: tenants.a.subjects: matches nobody without server.tls.client_ca; set that"}},
    {"an admin port that nobody may use",
     "version: 1\nserver: {admin: 127.0.0.1:8435}\n",
     {"p.yaml:2:10: error: server.admin: over TCP somebody must be allowed to call it: give a unix:PATH, an API key "
      "with admin: true, or admin_subjects with tls.client_ca"}},
    {"API keys in the clear",
     "version: 1\nserver: {grpc: 0.0.0.0:8433}\ntenants: {a: {api_key_sha256: [{id: k, sha256: "
     "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef}]}}\n",
     {"p.yaml:2:10: warning: server.grpc: API keys travel in the clear to 0.0.0.0:8433; set server.tls, or keep it "
      "behind something that does"}},
    {"one address for two services",
     "version: 1\nserver: {ops: 127.0.0.1:8433}\n",
     {"p.yaml:2:1: error: server: 127.0.0.1:8433 is given to two of grpc, ops and admin; each needs its own"}},
    {"a tenant that nobody can call as",
     "version: 1\ntenants: {a: {api_key_sha256: [{id: k, sha256: "
     "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef}]}, b: {}}\n",
     {"p.yaml:2:117: warning: tenants.b: nobody can call as this tenant, which has no API key and no subject while "
      "others have; give it one, or name a gateway in server.trusted_identity"}},
};

TEST(SettingsCheck, TellsWhatContradictsIsNotThereOrHasNoEffect) {
  for (const Case& c : kContradictions) test::ExpectFindings(c, test::ParseFindings(c.yaml));
}

}  // namespace
}  // namespace berth
