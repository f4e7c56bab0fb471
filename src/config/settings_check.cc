#include "config/settings_check.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "config/carry_over.h"
#include "config/suggestions.h"

namespace berth {
namespace {

bool HasClass(const ServerConfig& config, std::string_view name) {
  return std::any_of(config.classes.begin(), config.classes.end(),
                     [&](const ClassSettings& c) { return c.name == name; });
}

// What metrics call requests that were refused before their class was known: its series are not a class's own.
constexpr char kOtherClass[] = "other";

// One class, its keys against each other. Members write "classes.<name>.<key>" for a key.
class ClassCheck {
 public:
  ClassCheck(const ServerConfig& config, const ClassSettings& c, Diagnostics* diagnostics)
      : config_(config), class_(c), diagnostics_(diagnostics) {}

  void Run() {
    Lengths();
    Queue();
    Deadlines();
    NoEffect();
    if (std::none_of(config_.tenants.begin(), config_.tenants.end(),
                     [&](const TenantSettings& t) { return MayUse(t, class_.name); })) {
      Warning("",
              "no tenant may use this class, and what it is guaranteed is kept for nobody; name it in a tenant's "
              "classes or take it out");
    }
  }

 private:
  std::string Key(std::string_view key) const {
    return absl::StrCat("classes.", class_.name, key.empty() ? "" : ".", std::string(key));
  }
  void Error(std::string_view key, std::string message) { diagnostics_->Error(Key(key), std::move(message)); }
  void Warning(std::string_view key, std::string message) { diagnostics_->Warning(Key(key), std::move(message)); }
  bool Given(std::string_view key) const { return diagnostics_->Given(Key(key)); }

  void Lengths() {
    const std::int64_t asked = class_.default_output_tokens;
    if (class_.max_output_tokens && asked > *class_.max_output_tokens) {
      Error("default_output_tokens",
            absl::StrCat(asked, " is more than max_output_tokens (", *class_.max_output_tokens, "); lower it"));
    }
    if (!class_.max_sequence_tokens) return;
    const std::int64_t sequence = *class_.max_sequence_tokens;
    if (class_.max_output_tokens && *class_.max_output_tokens >= sequence) {
      Warning("max_output_tokens", absl::StrCat(*class_.max_output_tokens,
                                                " can never be asked for, as prompt and "
                                                "output together have max_sequence_tokens (",
                                                sequence, "); lower it"));
    } else if (asked >= sequence) {
      Warning("default_output_tokens", absl::StrCat(asked,
                                                    " is always cut, as prompt and output together have "
                                                    "max_sequence_tokens (",
                                                    sequence, "); lower it"));
    }
  }

  void Queue() {
    if (!class_.queue.max_tokens) return;
    const std::int64_t bound = *class_.queue.max_tokens;
    const std::int64_t least =
        std::min(class_.default_output_tokens + 1, class_.max_sequence_tokens.value_or(kUnlimited));
    if (bound < least) {
      Error("queue.max_tokens", absl::StrCat(bound, " is less than one request with default_output_tokens (", least,
                                             " with its prompt), so none is ever taken; raise it"));
    } else if (class_.max_sequence_tokens && bound < *class_.max_sequence_tokens) {
      Warning("queue.max_tokens", absl::StrCat(bound, " is less than one request of max_sequence_tokens (",
                                               *class_.max_sequence_tokens, "), which is never taken; raise it"));
    }
  }

  void Deadlines() {
    if (!class_.deadline.default_timeout) return;
    const Duration all = *class_.deadline.default_timeout;
    if (all <= class_.queue.max_wait && (Given("queue.max_wait") || Given("deadline.default"))) {
      Warning("deadline.default", absl::StrCat(FormatDuration(all), " ends every request before queue.max_wait (",
                                               FormatDuration(class_.queue.max_wait), ") can; raise it or lower that"));
    }
    if (class_.slo.time_to_first_token && all <= *class_.slo.time_to_first_token) {
      Warning("deadline.default",
              absl::StrCat(FormatDuration(all), " leaves no time beyond slo.time_to_first_token (",
                           FormatDuration(*class_.slo.time_to_first_token), "); raise it or lower that"));
    }
  }

  // Keys that the file sets and nothing reads.
  void NoEffect() {
    const auto only_with = [&](std::string_view key, bool used, const char* needs) {
      if (!used && Given(key)) Warning(key, absl::StrCat("has no effect without ", needs, "; take it out or set that"));
    };
    only_with("max_preemptions", class_.preemptible, "preemptible: true");
    only_with("kv_lending_limit", class_.kv_guarantee.amount > 0, "kv_guarantee");
    only_with("slo.objective", class_.slo.time_to_first_token || class_.slo.inter_token_latency,
              "slo.time_to_first_token or slo.inter_token_latency");
    only_with("deadline.useful_tokens", class_.deadline.require == DeadlineRequirement::kUsefulOutput,
              "deadline.require: useful_output");
    if (class_.deadline.require == DeadlineRequirement::kUsefulOutput && class_.max_output_tokens &&
        class_.deadline.useful_tokens > *class_.max_output_tokens) {
      Warning("deadline.useful_tokens",
              absl::StrCat(class_.deadline.useful_tokens, " is more than max_output_tokens (",
                           *class_.max_output_tokens, "), so the whole output counts; lower it"));
    }
    if (class_.overload == Overload::kShedLowest && !config_.server.max_queued_requests &&
        !config_.server.max_queued_tokens) {
      Warning("overload",
              "shed_lowest sheds nothing without server.max_queued_requests or server.max_queued_tokens; set "
              "one of them");
    }
  }

  const ServerConfig& config_;
  const ClassSettings& class_;
  Diagnostics* const diagnostics_;
};

void CheckClasses(const ServerConfig& config, Diagnostics* diagnostics) {
  if (config.classes.empty()) diagnostics->Error("classes", "at least one class is needed");
  if (!HasClass(config, config.default_class) && !config.classes.empty()) {
    diagnostics->Error("default_class", UnknownClass(config, config.default_class));
  }
  std::map<std::string_view, std::string_view> objectives;
  std::int64_t shares = 0;
  for (const ClassSettings& c : config.classes) {
    if (c.name == kOtherClass) {
      diagnostics->Error(absl::StrCat("classes.", c.name),
                         "the name is taken: metrics put requests of no known class under it; choose another");
    }
    ClassCheck(config, c, diagnostics).Run();
    shares += c.prefill_min_share_millionths;
    for (const std::string& objective : c.objectives) {
      const auto [first, is_new] = objectives.emplace(objective, c.name);
      if (is_new) continue;
      diagnostics->Error(absl::StrCat("classes.", c.name, ".objectives"),
                         absl::StrCat(Shown(objective), " already means class ", std::string(first->second),
                                      "; keep it in one class"));
    }
  }
  if (shares > kWholeMillionths) {
    diagnostics->Error("scheduler.prefill_min_share",
                       absl::StrCat("the shares add up to ", FormatShare(shares), "; at most 100%"));
  }
}

// The server's own queue bounds against what the classes may put in them.
void CheckQueues(const ServerConfig& config, Diagnostics* diagnostics) {
  std::int64_t requests = 0;
  for (const ClassSettings& c : config.classes) {
    requests += c.queue.max_requests;
    const std::int64_t least = std::min(c.default_output_tokens + 1, c.max_sequence_tokens.value_or(kUnlimited));
    if (config.server.max_queued_tokens && *config.server.max_queued_tokens < least) {
      diagnostics->Error("server.max_queued_tokens",
                         absl::StrCat(*config.server.max_queued_tokens, " is less than one request of class ", c.name,
                                      " with its default_output_tokens (", least,
                                      " with its prompt), so none is ever taken; raise it"));
    }
  }
  if (config.server.max_queued_requests && *config.server.max_queued_requests >= requests) {
    diagnostics->Warning("server.max_queued_requests", absl::StrCat(*config.server.max_queued_requests,
                                                                    " is never reached, as the classes' own "
                                                                    "queue.max_requests add up to ",
                                                                    requests, "; lower it or take it out"));
  }
}

// Who is who: every credential means one tenant.
class CredentialCheck {
 public:
  CredentialCheck(const ServerConfig& config, Diagnostics* diagnostics) : config_(config), diagnostics_(diagnostics) {}

  void Run() {
    for (const TenantSettings& t : config_.tenants) {
      Keys(t);
      Subjects(t);
    }
    const bool files = std::any_of(config_.tenants.begin(), config_.tenants.end(),
                                   [](const TenantSettings& t) { return !t.api_key_file.empty(); });
    for (const std::string& id : config_.server.trusted_identity.key_ids) {
      // A key file that could not be read may hold it.
      if (ids_.contains(id) || files) continue;
      diagnostics_->Error("server.trusted_identity.key_ids",
                          absl::StrCat("no API key has the id ", Shown(id), "; add it to a tenant or take it out"));
    }
    Transport();
    Unreachable();
  }

 private:
  void Keys(const TenantSettings& t) {
    // Of the empty text: a key that was never made.
    constexpr std::string_view kEmptyHash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    const std::string key = absl::StrCat("tenants.", t.name, ".api_key_sha256");
    for (const ApiKeySettings& api_key : t.api_keys) {
      const auto told = [&](const std::string& what) { diagnostics_->Error(key, what); };
      if (!ids_.insert(api_key.id).second) {
        told(absl::StrCat("the id ", Shown(api_key.id), " is there twice; every API key needs its own"));
      }
      const auto [first, is_new] = hashes_.emplace(api_key.sha256, api_key.id);
      if (!is_new) {
        told(absl::StrCat("the keys ", Shown(first->second), " and ", Shown(api_key.id),
                          " have the same hash; make one "
                          "of them anew"));
      }
      if (api_key.sha256 == kEmptyHash) told(absl::StrCat(Shown(api_key.id), " is the hash of an empty key; make one"));
      has_admin_key_ = has_admin_key_ || api_key.admin;
    }
  }

  void Subjects(const TenantSettings& t) {
    for (const std::string& subject : t.subjects) {
      const auto [first, is_new] = subjects_.emplace(subject, t.name);
      if (is_new) continue;
      diagnostics_->Error(
          absl::StrCat("tenants.", t.name, ".subjects"),
          absl::StrCat(Shown(subject), " already speaks for tenant ", first->second, "; keep it in one tenant"));
    }
  }

  static bool IsLocal(const std::string& address) {
    return address.starts_with("unix:") || address.starts_with("127.") || address.starts_with("localhost:") ||
           address.starts_with("[::1]:");
  }

  void Transport() {
    const ServerSettings& server = config_.server;
    const TlsSettings& tls = server.tls;
    if (tls.certificate.empty() != tls.key.empty()) {
      diagnostics_->Error("server.tls",
                          tls.key.empty() ? "key is missing beside certificate" : "certificate is missing beside key");
    }
    if (!tls.client_ca.empty() && tls.certificate.empty()) {
      diagnostics_->Error("server.tls.client_ca", "client certificates need TLS; set certificate and key");
    }
    if (tls.client_ca.empty()) {
      const auto idle = [&](const std::string& key, bool used) {
        if (used) diagnostics_->Warning(key, "matches nobody without server.tls.client_ca; set that");
      };
      idle("server.admin_subjects", !server.admin_subjects.empty());
      idle("server.trusted_identity.subjects", !server.trusted_identity.subjects.empty());
      for (const TenantSettings& t : config_.tenants) {
        idle(absl::StrCat("tenants.", t.name, ".subjects"), !t.subjects.empty());
      }
    }
    const bool admin_by_subject = !server.admin_subjects.empty() && !tls.client_ca.empty();
    const bool files = std::any_of(config_.tenants.begin(), config_.tenants.end(),
                                   [](const TenantSettings& t) { return !t.api_key_file.empty(); });
    if (!server.admin.starts_with("unix:") && !admin_by_subject && !has_admin_key_ && !files) {
      diagnostics_->Error(
          "server.admin",
          "over TCP somebody must be allowed to call it: give a unix:PATH, an API key with admin: true, or "
          "admin_subjects with tls.client_ca");
    }
    if (!hashes_.empty() && tls.certificate.empty() && !IsLocal(server.grpc)) {
      diagnostics_->Warning("server.grpc", absl::StrCat("API keys travel in the clear to ", server.grpc,
                                                        "; set server.tls, or keep it behind something that does"));
    }
    if (server.grpc == server.ops || server.grpc == server.admin || server.ops == server.admin) {
      const std::string& twice = server.grpc == server.ops || server.grpc == server.admin ? server.grpc : server.ops;
      if (!twice.ends_with(":0")) {
        diagnostics_->Error("server",
                            absl::StrCat(twice, " is given to two of grpc, ops and admin; each needs its own"));
      }
    }
  }

  // With credentials in use, a tenant without any can be named by a trusted caller only.
  void Unreachable() {
    const TrustedIdentitySettings& trusted = config_.server.trusted_identity;
    const bool credentials = std::any_of(config_.tenants.begin(), config_.tenants.end(),
                                         [](const TenantSettings& t) { return t.has_credentials(); });
    if (!credentials || !trusted.subjects.empty() || !trusted.key_ids.empty()) return;
    for (const TenantSettings& t : config_.tenants) {
      if (t.has_credentials() || t.name == kDefaultTenant) continue;
      diagnostics_->Warning(
          absl::StrCat("tenants.", t.name),
          "nobody can call as this tenant, which has no API key and no subject while others have; give it "
          "one, or name a gateway in server.trusted_identity");
    }
  }

  const ServerConfig& config_;
  Diagnostics* const diagnostics_;
  std::set<std::string> ids_;
  std::map<std::string, std::string> hashes_;    // → id
  std::map<std::string, std::string> subjects_;  // → tenant
  bool has_admin_key_ = false;
};

void CheckTenantClasses(const ServerConfig& config, const TenantSettings& t, Diagnostics* diagnostics) {
  if (!t.classes) return;
  const std::string key = absl::StrCat("tenants.", t.name, ".classes");
  if (t.classes->empty())
    diagnostics->Error(key, "an empty list allows no class; name one, or take the key out for all");
  for (const std::string& name : *t.classes) {
    if (!HasClass(config, name)) diagnostics->Error(key, UnknownClass(config, name));
  }
  if (t.name == kDefaultTenant && !t.classes->empty() && !MayUse(t, config.default_class) &&
      HasClass(config, config.default_class)) {
    diagnostics->Warning(key, absl::StrCat("leaves out default_class (", config.default_class,
                                           "), so a request that names neither tenant nor class is refused; add it"));
  }
}

void CheckTenants(const ServerConfig& config, Diagnostics* diagnostics) {
  const bool credentials = std::any_of(config.tenants.begin(), config.tenants.end(),
                                       [](const TenantSettings& t) { return t.has_credentials(); });
  if (!credentials && diagnostics->Given("tenants") && !diagnostics->Given(absl::StrCat("tenants.", kDefaultTenant))) {
    diagnostics->Warning("tenants",
                         "without API keys anybody may call as any tenant, and one that is not listed has the "
                         "limits of default, which is not listed and so has none; list it");
  }
  for (const TenantSettings& t : config.tenants) {
    const std::string prefix = absl::StrCat("tenants.", t.name);
    if (t.name == kOtherTenant) {
      diagnostics->Error(prefix,
                         "the name is taken: metrics put all tenants beyond their bound under it; choose another");
    }
    CheckTenantClasses(config, t, diagnostics);
    if (t.burst_tokens && !t.tokens_per_minute) {
      diagnostics->Warning(prefix + ".burst_tokens",
                           "has no effect without tokens_per_minute; take it out or set that");
    }
    const std::int64_t burst = t.burst_tokens.value_or(t.tokens_per_minute.value_or(kUnlimited));
    for (const ClassSettings& c : config.classes) {
      const std::int64_t least = std::min(c.default_output_tokens + 1, c.max_sequence_tokens.value_or(kUnlimited));
      if (!t.tokens_per_minute || burst >= least || !MayUse(t, c.name)) continue;
      diagnostics->Warning(
          prefix + (t.burst_tokens ? ".burst_tokens" : ".tokens_per_minute"),
          absl::StrCat(burst, " is less than one request of class ", c.name, " with its default_output_tokens (", least,
                       " with its prompt), which is never taken; raise burst_tokens"));
    }
  }
}

}  // namespace

void CheckSettings(const ServerConfig& config, Diagnostics* diagnostics) {
  const std::int32_t block = config.kv_cache.block_tokens;
  if ((block & (block - 1)) != 0) {
    diagnostics->Error("kv_cache.block_tokens", absl::StrCat(block, " is no power of two; write 16 or 32"));
  }
  if (config.scheduler.max_batched_tokens < config.scheduler.max_running_sequences) {
    diagnostics->Error("scheduler.max_batched_tokens",
                       absl::StrCat(config.scheduler.max_batched_tokens, " is less than max_running_sequences (",
                                    config.scheduler.max_running_sequences,
                                    "), so that not every running sequence could decode in a step; raise it"));
  }
  if (config.compute.backend == BackendChoice::kCuda && config.kv_dtype() == KvDtype::kFloat32) {
    diagnostics->Error(config.compute.float32 ? "compute.float32" : "kv_cache.dtype",
                       "float32 is the CPU's alone; take it out, or choose compute.backend: cpu");
  }
  CheckClasses(config, diagnostics);
  CheckQueues(config, diagnostics);
  CheckTenants(config, diagnostics);
  CredentialCheck(config, diagnostics).Run();
}

std::string UnknownClass(const ServerConfig& config, std::string_view name) {
  std::vector<std::string_view> names;
  for (const ClassSettings& c : config.classes) names.push_back(c.name);
  return absl::StrCat("no class is named ", Shown(name), NearestHint(name, names));
}

bool MayUse(const TenantSettings& tenant, std::string_view service_class) {
  return !tenant.classes ||
         std::find(tenant.classes->begin(), tenant.classes->end(), service_class) != tenant.classes->end();
}

}  // namespace berth
