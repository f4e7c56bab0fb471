#include "cli/policy_report.h"

#include <algorithm>

#include "admission/demand.h"
#include "admission/reach.h"

namespace berth::cli {
namespace {

constexpr std::size_t kMostTenantsShown = 50;

RequestsAtOnce CountRequests(const ClassPolicy& c, const ClassReport& reach, std::int64_t prompt, std::int64_t output,
                             std::int64_t block_tokens) {
  RequestsAtOnce count;
  count.tokens = prompt + output;
  count.blocks = WorstBlocks(prompt, output, 1, block_tokens);
  count.always = std::min(c.kv_guarantee_blocks / count.blocks, c.slot_guarantee);
  count.at_most = std::min(reach.reach_blocks / count.blocks, reach.reach_slots);
  return count;
}

// What typical requests run into first.
std::string FirstLimit(const ClassPolicy& c, const ClassReport& report) {
  if (report.typical.blocks > report.reach_blocks) return "one is too large";
  if (report.reach_slots < report.reach_blocks / report.typical.blocks) return "sequence slots";
  if (report.reach_blocks == c.ceiling_blocks()) {
    return c.kv_borrowing_limit_blocks > 0 ? "kv_borrowing_limit" : "kv_guarantee";
  }
  return c.preemptible ? "what others lend" : "common space";
}

std::string Blocks(std::int64_t blocks, std::int64_t whole) {
  std::string text = GroupDigits(blocks);
  if (blocks > 0 && whole > 0)
    text += " (" + Fixed(100.0 * static_cast<double>(blocks) / static_cast<double>(whole), 1) + "%)";
  return text;
}

std::string Borrowing(const ClassPolicy& c, std::int64_t pool) {
  std::string text = Blocks(c.kv_borrowing_limit_blocks, pool);
  if (c.kv_borrowing_limit_blocks == 0 || c.kv_guarantee_blocks == 0) return text;
  const double ratio = static_cast<double>(c.kv_borrowing_limit_blocks) / static_cast<double>(c.kv_guarantee_blocks);
  return text + " = " + Fixed(100.0 * ratio, 0) + "% of its own";
}

std::string Limit(std::int64_t limit, const std::string& shown, const char* unlimited) {
  return limit >= kUnlimited ? unlimited : shown;
}

// What always is there, to what may be there at most.
std::string Range(std::int64_t always, std::int64_t at_most) {
  return always == at_most ? GroupDigits(always) : GroupDigits(always) + " to " + GroupDigits(at_most);
}

std::string AtOnce(const RequestsAtOnce& count) { return Range(count.always, count.at_most); }

std::string Length(const RequestsAtOnce& count) {
  return GroupDigits(count.tokens) + " tokens, " + GroupDigits(count.blocks) + " blocks";
}

std::string BlockTable(const Policy& policy, std::int64_t pool, const std::vector<ClassReport>& classes) {
  ColumnTable table({"KV blocks", "guaranteed", "may borrow", "ceiling", "lends", "reach"});
  for (std::size_t i = 0; i < classes.size(); ++i) {
    const ClassPolicy& c = policy.classes[i];
    table.Add({c.name, Blocks(c.kv_guarantee_blocks, pool), Borrowing(c, pool), Blocks(c.ceiling_blocks(), pool),
               Limit(c.kv_lending_limit_blocks, Blocks(c.kv_lending_limit_blocks, pool), "all"),
               Blocks(classes[i].reach_blocks, pool)});
  }
  return table.Text();
}

std::string RequestTable(const Policy& policy, const std::vector<ClassReport>& classes) {
  ColumnTable table({"requests", "slots", "typical", "at once", "longest", "at once", "first limit"});
  for (std::size_t i = 0; i < classes.size(); ++i) {
    const ClassPolicy& c = policy.classes[i];
    const ClassReport& report = classes[i];
    table.Add({c.name, Range(c.slot_guarantee, report.reach_slots), Length(report.typical), AtOnce(report.typical),
               report.longest ? Length(*report.longest) : "-", report.longest ? AtOnce(*report.longest) : "-",
               report.first_limit});
  }
  return table.Text();
}

std::string TenantTable(const ServerConfig& config, const Policy& policy, std::int64_t pool) {
  ColumnTable table({"tenant", "weight", "classes", "max_kv", "requests", "tokens a minute", "keys"});
  for (std::size_t t = 0; t < std::min(policy.tenants.size(), kMostTenantsShown); ++t) {
    const TenantPolicy& tenant = policy.tenants[t];
    std::string classes;
    for (const ClassId c : tenant.classes.value_or(std::vector<ClassId>())) {
      classes += (classes.empty() ? "" : ", ") + policy.classes[static_cast<std::size_t>(c)].name;
    }
    const std::int64_t requests = tenant.max_concurrent_requests;
    table.Add(
        {tenant.name,
         Fixed(tenant.weight, tenant.weight == static_cast<double>(static_cast<std::int64_t>(tenant.weight)) ? 0 : 2),
         tenant.classes ? classes : "all", Limit(tenant.max_kv_blocks, Blocks(tenant.max_kv_blocks, pool), "none"),
         Limit(requests, GroupDigits(requests), "none"),
         tenant.tokens_per_minute ? GroupDigits(static_cast<std::int64_t>(*tenant.tokens_per_minute)) : "none",
         std::to_string(config.tenants[t].api_keys.size())});
  }
  std::string text = table.Text();
  if (policy.tenants.size() > kMostTenantsShown) {
    text += "  and " + GroupDigits(static_cast<std::int64_t>(policy.tenants.size() - kMostTenantsShown)) + " more\n";
  }
  return text;
}

Json RequestsJson(const RequestsAtOnce& count) {
  return {{"tokens", count.tokens}, {"blocks", count.blocks}, {"always", count.always}, {"at_most", count.at_most}};
}

Json OrNull(std::int64_t limit) { return limit >= kUnlimited ? Json() : Json(limit); }

}  // namespace

std::vector<ClassReport> ReportClasses(const Policy& policy, const PolicyContext& context,
                                       std::int64_t typical_prompt_tokens) {
  std::vector<ClassReport> reports;
  for (std::size_t i = 0; i < policy.classes.size(); ++i) {
    const ClassPolicy& c = policy.classes[i];
    ClassReport& report = reports.emplace_back();
    report.reach_blocks = ReachBlocks(policy, static_cast<ClassId>(i), context.pool.num_blocks);
    report.reach_slots = ReachSlots(policy, static_cast<ClassId>(i));
    const std::int64_t longest = c.max_sequence_tokens;
    const std::int64_t output = std::clamp<std::int64_t>(longest - 1, 1, c.default_output_tokens);
    const std::int64_t prompt = std::clamp<std::int64_t>(longest - output, 1, typical_prompt_tokens);
    report.typical = CountRequests(c, report, prompt, output, context.pool.block_tokens);
    if (longest < kUnlimited) {
      report.longest = CountRequests(c, report, std::max<std::int64_t>(1, longest - 1), 1, context.pool.block_tokens);
    }
    report.first_limit = FirstLimit(c, report);
  }
  return reports;
}

Json PolicyJson(const Policy& policy, const PolicyContext& context, const std::vector<ClassReport>& classes) {
  Json class_list = Json::array();
  for (std::size_t i = 0; i < classes.size(); ++i) {
    const ClassPolicy& c = policy.classes[i];
    const ClassReport& report = classes[i];
    class_list.push_back({{"name", c.name},
                          {"priority", c.priority},
                          {"preemptible", c.preemptible},
                          {"guaranteed_blocks", c.kv_guarantee_blocks},
                          {"borrowing_limit_blocks", c.kv_borrowing_limit_blocks},
                          {"ceiling_blocks", c.ceiling_blocks()},
                          {"lending_limit_blocks", OrNull(c.kv_lending_limit_blocks)},
                          {"reach_blocks", report.reach_blocks},
                          {"guaranteed_slots", c.slot_guarantee},
                          {"reach_slots", report.reach_slots},
                          {"typical", RequestsJson(report.typical)},
                          {"longest", report.longest ? RequestsJson(*report.longest) : Json()},
                          {"first_limit", report.first_limit}});
  }
  Json tenants = Json::array();
  for (const TenantPolicy& tenant : policy.tenants) {
    tenants.push_back({{"name", tenant.name},
                       {"weight", tenant.weight},
                       {"max_kv_blocks", OrNull(tenant.max_kv_blocks)},
                       {"max_concurrent_requests", OrNull(tenant.max_concurrent_requests)}});
  }
  return {{"pool", {{"blocks", context.pool.num_blocks}, {"block_tokens", context.pool.block_tokens}}},
          {"max_running_sequences", policy.max_running_sequences},
          {"max_batched_tokens", policy.max_batched_tokens},
          {"classes", std::move(class_list)},
          {"tenants", std::move(tenants)}};
}

std::string PolicyTables(const ServerConfig& config, const Policy& policy, const PolicyContext& context,
                         const std::vector<ClassReport>& classes) {
  const std::int64_t pool = context.pool.num_blocks;
  return "\n" + BlockTable(policy, pool, classes) + "\n" + RequestTable(policy, classes) +
         "  38 to 52: 38 always, whatever other classes do, and 52 at most\n\n" + TenantTable(config, policy, pool);
}

}  // namespace berth::cli
