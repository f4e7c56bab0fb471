#!/usr/bin/env python3
"""Runs scenarios through the executable model of the reservation rules and writes what it decided, plan by plan.

usage: export_scenarios.py MODEL_FOLDER OUTPUT.json FIRST_SEED COUNT

The model and its scenario generator are imported from MODEL_FOLDER. `Oracle` below replaces the points that the rules
leave open, or that the model words differently, by the choices of docs/ledger.md ("Choices").
"""

import collections
import json
import sys

FLAGS = frozenset(
    "slotreach,capend,dynprot,rejudge,q10,protslots,protused,nobackpark,quotares,noreplan,shrink,promfix,debtexact,"
    "keepnp,lendall,lendclaim,tenblock,overown,slotfreed".split(","))
OPTIONS = ["", "policy", "policy,quota", "quota", "policy,flip", "prot", "policy,mshrink,quota", "policy,flip,quota,prot"]


def make_oracle(model):
    class Oracle(model.World):
        def __init__(self, scenario):
            super().__init__(scenario, FLAGS)
            self.plans = collections.defaultdict(lambda: {"start": [], "preempt": [], "end": []})
            self.counter = collections.Counter()  # (class, tenant) -> block-seconds
            self.was_live = {}
            self.frozen = None

        def live(self, r):
            return r.st in ("queue", "park", "run")

        # The order between tenants: a counter per class, frozen for a plan, newcomers lifted.
        def waiting(self, c):
            counter = self.counter if self.frozen is None else self.frozen
            waiting = [r for r in self.reqs if r.c == c and r.st in ("queue", "park")]
            waiting.sort(key=lambda r: (r.st != "park", counter[c, r.ten], r.dl, r.rid))
            return waiting

        def lift(self):
            now_live = {(r.c, r.ten) for r in self.reqs if self.live(r)}
            for c in range(len(self.cl)):
                there = [self.counter[k] for k in now_live if k[0] == c and self.was_live.get(k)]
                if there:
                    for k in now_live:
                        if k[0] == c and not self.was_live.get(k):
                            self.counter[k] = max(self.counter[k], min(there))
            self.was_live = dict.fromkeys(now_live, True)

        def admission(self):
            self.lift()
            self.frozen = self.counter.copy()
            super().admission()
            self.frozen = None

        # A tenant at its quota is passed over with everything of it that comes later, also in backfill.
        def tenok(self, r, sn):
            if self.quota.get(r.ten) is None:
                return True
            if not super().tenok(r, sn):
                return False
            for other in self.waiting(r.c):
                if other is r:
                    break
                if other.ten == r.ten and not super().tenok(other, sn):
                    return False
            return True

        # A head that fits now has its reserved start now, not at the end of whoever runs.
        def reserved_start(self, sn, r):
            after = dict(sn)
            after[r.rid] = self.cand(r)
            if self.common_ok(after, r.c, sn) and self.tenok(r, sn):
                return 0, frozenset()
            return super().reserved_start(sn, r)

        # What a plan preempted does not start in it, by backfill neither.
        def mayres(self, r):
            return super().mayres(r) and not (r.st == "park" and r.parked_since == self.now)

        def start(self, r, how):
            if r.st == "queue":
                r.maxp = self.cl[r.c].maxp  # taken at the start, not at arrival
            super().start(r, how)
            r.since, r.used, r.charged = self.now, 0, r.res * self.eta(r)
            self.counter[r.c, r.ten] += r.charged
            self.plans[self.now]["start"].append(r.rid)

        def account(self, r):
            r.used += r.res * (self.now - r.since)
            r.since = self.now

        # Blocks return last position first.
        def letgo(self, r):
            if r.st == "run":
                self.account(r)
                self.counter[r.c, r.ten] += r.used - r.charged
            for own in r.own:
                for b in reversed(own):
                    self.drop(r, b)
            for b in reversed(r.shared):
                self.drop(r, b)
            r.shared, r.own, r.comp, r.res = [], [[] for _ in range(r.n)], 0, 0

        def sample(self, r, q):
            self.account(r)
            ends = r.k[q] + 1 >= min(r.O, r.eos[q])
            if ends and any(not done for i, done in enumerate(r.done) if i != q):
                r.own[q].reverse()
            super().sample(r, q)

        def preempt(self, r):
            super().preempt(r)
            if r.st == "park":
                self.plans[self.now]["preempt"].append(r.rid)

        def finish(self, r, why):
            super().finish(r, why)
            self.plans[self.now]["end"].append([r.rid, why])

    return Oracle


def main():
    folder, output, first_seed, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    sys.path.insert(0, folder)
    import fuzz
    import model

    oracle_class = make_oracle(model)
    scenarios = []
    for seed in range(first_seed, first_seed + count):
        options = OPTIONS[seed % len(OPTIONS)].split(",")
        scenario = (fuzz.gen2 if seed % 3 or "prot" in options else fuzz.gen)(seed, options)
        world = oracle_class(scenario)
        violations = world.run()
        if violations:
            sys.exit(f"seed {seed}: the model itself breaks an invariant: {violations[:2]}")
        scenario["seed"] = seed
        scenario["quota"] = {str(k): v for k, v in scenario["quota"].items()}
        scenario["plans"] = {str(t): p for t, p in sorted(world.plans.items())}
        scenario["last_plan"] = world.now
        scenarios.append(scenario)
    with open(output, "w", encoding="utf-8") as file:
        json.dump(scenarios, file, separators=(",", ":"))


if __name__ == "__main__":
    main()
