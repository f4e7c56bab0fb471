#include "config/policy_lint.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "policy_cases.h"

namespace berth {
namespace {

using test::Case;

// For a pool of 100 blocks of 16 tokens and 1000 bytes, and a context of 2048 tokens.
const Case kFindings[] = {
    {"guarantees beyond the pool",
     "version: 1\nclasses: {interactive: {kv_guarantee: 60%, max_sequence_tokens: 512}, batch: {kv_guarantee: 41%}}\n",
     {"p.yaml:2:1: error: classes: the kv_guarantee of all classes add up to 101 blocks (interactive 60, batch 41), "
      "the pool has 100; lower them"}},
    {"slots beyond the machine",
     "version: 1\nscheduler: {max_running_sequences: 4}\nclasses: {interactive: {kv_guarantee: 50%, slot_guarantee: "
     "3}, batch: {kv_guarantee: 50%, slot_guarantee: 2}}\n",
     {"p.yaml:3:1: error: classes: the slot_guarantee of all classes add up to 5 (interactive 3, batch 2), "
      "scheduler.max_running_sequences is 4; lower them or raise that"}},
    {"a class with nothing",
     "version: 1\nclasses: {interactive: {kv_guarantee: 100%}, batch: {}}\n",
     {"p.yaml:2:46: error: classes.batch: nothing of it can ever start, as it has no kv_guarantee and borrows nothing; "
      "give it one of kv_guarantee and kv_borrowing_limit"}},
    {"a class with nothing left to borrow",
     "version: 1\nclasses: {interactive: {kv_guarantee: 100%}, batch: {kv_borrowing_limit: 10%}}\n",
     {"p.yaml:2:46: error: classes.batch: nothing of it can ever start, as it has no kv_guarantee and no block is left "
      "to borrow; give it a kv_guarantee, or lower those of other classes"}},
    {"a class without a slot",
     "version: 1\nscheduler: {max_running_sequences: 2}\nclasses: {interactive: {kv_guarantee: 50%, slot_guarantee: "
     "2}, batch: {kv_borrowing_limit: 50%, max_sequence_tokens: 512}}\n",
     {"p.yaml:3:64: error: classes.batch: nothing of it can ever start, as all 2 sequence slots are guaranteed to "
      "other classes; give it a slot_guarantee, or raise scheduler.max_running_sequences"}},
    {"a guarantee of less than a block",
     "version: 1\nclasses: {interactive: {kv_guarantee: 0.5%, kv_borrowing_limit: 100%, preemptible: true}}\n",
     {"p.yaml:2:25: warning: classes.interactive.kv_guarantee: 0.5% is less than one block of the pool's 100, so it "
      "guarantees nothing; raise it or write 0"}},
    {"borrowing what others are guaranteed, without being preemptible",
     "version: 1\nclasses: {interactive: {kv_guarantee: 60%}, batch: {kv_guarantee: 20%, kv_borrowing_limit: 80%}}\n",
     {"p.yaml:2:72: warning: classes.batch.kv_borrowing_limit: at most 20 of 80 blocks can ever be used, as a class "
      "that is not preemptible borrows only what is guaranteed to nobody; set preemptible: true, or lower it"}},
    {"borrowing where nothing is common",
     "version: 1\nclasses: {interactive: {kv_guarantee: 60%}, batch: {kv_guarantee: 40%, kv_borrowing_limit: 10%}}\n",
     {"p.yaml:2:72: warning: classes.batch.kv_borrowing_limit: none of 10 blocks can ever be used, as a class that is "
      "not preemptible borrows only what is guaranteed to nobody; set preemptible: true, or lower it"}},
    {"borrowing more than the pool",
     "version: 1\nclasses: {interactive: {kv_guarantee: 60%, kv_borrowing_limit: 60%, preemptible: true}}\n",
     {"p.yaml:2:44: warning: classes.interactive.kv_borrowing_limit: at most 40 of 60 blocks can ever be used, as the "
      "pool has 100 and 60 are the class's own; lower it"}},
    {"borrowing what others do not lend",
     "version: 1\nclasses: {interactive: {kv_guarantee: 60%, kv_lending_limit: 10%}, batch: {kv_guarantee: 20%, "
     "kv_borrowing_limit: 80%, preemptible: true}}\n",
     {"p.yaml:2:95: warning: classes.batch.kv_borrowing_limit: at most 30 of 80 blocks can ever be used, as other "
      "classes lend no more (kv_lending_limit); raise theirs or lower it"}},
    {"lending more than the guarantee",
     "version: 1\nclasses: {interactive: {kv_guarantee: 60%, kv_lending_limit: 70%}, batch: {kv_guarantee: 40%}}\n",
     {"p.yaml:2:44: warning: classes.interactive.kv_lending_limit: 70 blocks are more than the guarantee (60), of "
      "which all is lent then; lower it or take it out"}},
    {"a common space that nobody may use",
     "version: 1\nclasses: {interactive: {kv_guarantee: 60%}, batch: {kv_guarantee: 20%}}\n",
     {"p.yaml:2:1: warning: classes: 20 blocks of the pool's 100 are guaranteed to nobody and no class may borrow "
      "them; raise a kv_guarantee or a kv_borrowing_limit"}},
    {"a sequence longer than the context",
     "version: 1\nclasses: {interactive: {kv_guarantee: 100%, max_sequence_tokens: 4096}}\n",
     {"p.yaml:2:45: warning: classes.interactive.max_sequence_tokens: 4096 is more than the model's context of 2048; "
      "lower it or take it out",
      "p.yaml:2:45: warning: classes.interactive.max_sequence_tokens: 2048 tokens need 128 blocks, more than the 100 "
      "that one request of the class can ever have; lower it to 1601, or raise kv_guarantee or kv_borrowing_limit"}},
    {"a sequence beyond the class's reach",
     "version: 1\nclasses: {interactive: {kv_guarantee: 60%, max_sequence_tokens: 1024}, batch: {kv_guarantee: 40%}}\n",
     {"p.yaml:2:44: warning: classes.interactive.max_sequence_tokens: 1024 tokens need 64 blocks, more than the 60 "
      "that one request of the class can ever have; lower it to 961, or raise kv_guarantee or kv_borrowing_limit"}},
    {"an output beyond the class's reach",
     "version: 1\nclasses: {interactive: {kv_guarantee: 60%, max_output_tokens: 1024}, batch: {kv_guarantee: 40%}}\n",
     {"p.yaml:2:44: warning: classes.interactive.max_output_tokens: 1024 tokens need 64 blocks, more than the 60 that "
      "one request of the class can ever have; lower it to 960, or raise kv_guarantee or kv_borrowing_limit"}},
    {"a default output beyond the class's reach",
     "version: 1\nclasses: {interactive: {kv_guarantee: 90%}, batch: {kv_guarantee: 10%}}\n",
     {"p.yaml:2:45: warning: classes.batch.default_output_tokens: a request that names no length needs 16 blocks, more "
      "than the 10 that one request of the class can ever have; lower it to at most 160, or raise kv_guarantee or "
      "kv_borrowing_limit"}},
    {"a guarantee smaller than an ordinary request",
     "version: 1\nclasses: {interactive: {kv_guarantee: 90%}, batch: {kv_guarantee: 10%, kv_borrowing_limit: 90%, "
     "preemptible: true}}\n",
     {"p.yaml:2:53: warning: classes.batch.kv_guarantee: a request that names no length needs 16 blocks, more than the "
      "10 guaranteed, so the guarantee never serves it; raise it, or lower default_output_tokens"}},
    {"a guarantee without a slot",
     "version: 1\nclasses: {interactive: {kv_guarantee: 100%, slot_guarantee: 0}}\n",
     {"p.yaml:2:45: warning: classes.interactive.slot_guarantee: 0 leaves the blocks of kv_guarantee without a "
      "sequence that could use them when all slots are taken; raise it or take it out"}},
    {"a guarantee that the slots cannot fill",
     "version: 1\nscheduler: {max_running_sequences: 2}\nclasses: {interactive: {kv_guarantee: 100%, "
     "max_sequence_tokens: 512}}\n",
     {"p.yaml:3:25: warning: classes.interactive.kv_guarantee: the 2 sequences it may run hold at most 64 blocks of "
      "the 100 guaranteed; lower it, or raise scheduler.max_running_sequences"}},
    {"a guarantee that the tenants' quotas cannot fill",
     "version: 1\nclasses: {interactive: {kv_guarantee: 50%}, batch: {kv_guarantee: 50%}}\ntenants: {default: "
     "{classes: [interactive]}, acme: {classes: [batch], max_kv: 20%}, bert: {classes: [batch], max_kv: 20%}}\n",
     {"p.yaml:2:53: warning: classes.batch.kv_guarantee: the tenants that may use the class reserve at most 40 blocks "
      "together (max_kv) of the 50 guaranteed; lower it, or raise theirs"}},
    {"a quota of nothing",
     "version: 1\nclasses: {interactive: {kv_guarantee: 100%}}\ntenants: {default: {}, acme: {max_kv: 0}}\n",
     {"p.yaml:3:31: error: tenants.acme.max_kv: 0 lets the tenant start nothing; raise it, or take its classes away"}},
    {"a quota smaller than an ordinary request",
     "version: 1\nclasses: {interactive: {kv_guarantee: 100%}}\ntenants: {default: {}, acme: {max_kv: 15}}\n",
     {"p.yaml:3:31: warning: tenants.acme.max_kv: a request of class interactive that names no length needs 16 blocks, "
      "more than the 15 the tenant may reserve; raise it, or lower default_output_tokens of the class"}},
};

TEST(PolicyLint, TellsWhatThePoolCannotKeepAndWhatNobodyCanUse) {
  for (const Case& c : kFindings) test::ExpectFindings(c, test::ResolveFindings(c.yaml, test::SmallPool()));
}

}  // namespace
}  // namespace berth
