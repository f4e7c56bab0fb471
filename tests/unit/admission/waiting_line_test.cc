#include "admission/waiting_line.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

namespace berth {
namespace {

// The rule as it is told, with a loop over all tenants.
struct Told {
  struct Tenant {
    double counter = 0.0;
    int live = 0;
    bool was_live = false;
  };
  std::vector<Tenant> tenants;

  void Freeze() {
    double least = std::numeric_limits<double>::infinity();
    for (const Tenant& t : tenants) {
      if (t.live > 0 && t.was_live) least = std::min(least, t.counter);
    }
    for (Tenant& t : tenants) {
      if (t.live > 0 && !t.was_live && least < std::numeric_limits<double>::infinity()) {
        t.counter = std::max(t.counter, least);
      }
      t.was_live = t.live > 0;
    }
  }
};

TEST(WaitingLine, LiftsNewcomersToTheLeastCounterOfThoseThatWereThereHoweverManyAreAway) {
  constexpr std::size_t kTenants = 40;
  std::mt19937 random(11);  // NOLINT: the same run every time
  WaitingLine line;
  line.GrowTenants(kTenants);
  Told told;
  told.tenants.resize(kTenants);
  for (int turn = 0; turn < 20'000; ++turn) {
    const std::size_t t = random() % kTenants;
    const auto id = static_cast<TenantId>(t);
    Told::Tenant& tenant = told.tenants[t];
    switch (random() % 4) {
      case 0:
        // Few at once, so that all are away now and then.
        if (std::ranges::count_if(told.tenants, [](const auto& each) { return each.live > 0; }) > 4) break;
        line.CountLive(id, 1);
        ++tenant.live;
        break;
      case 1:
        if (tenant.live == 0) break;
        line.CountLive(id, -1);
        --tenant.live;
        break;
      case 2: {
        if (tenant.live == 0) break;
        const double charge = static_cast<double>(random() % 100) - 10.0;
        line.Charge(id, charge);
        tenant.counter += charge;
        break;
      }
      default:
        line.Freeze();
        told.Freeze();
        for (std::size_t each = 0; each < kTenants; ++each) {
          ASSERT_EQ(line.counter(static_cast<TenantId>(each)), told.tenants[each].counter) << "turn " << turn;
        }
    }
  }
}

}  // namespace
}  // namespace berth
