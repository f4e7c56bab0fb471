#include "frontend/identity.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/index.h"
#include "base/text.h"

namespace berth {
namespace {

constexpr std::string_view kBearer = "Bearer ";
constexpr std::size_t kMaxTenantNameBytes = 128;
constexpr char kOther[] = "other";  // where a policy has spare places, the tenant of all who get none

bool IsTenantName(std::string_view name) { return name.size() <= kMaxTenantNameBytes && IsPrintableAscii(name); }

Refusal Unauthenticated(RefusalReason reason, std::string message) {
  Refusal refusal;
  refusal.reason = reason;
  refusal.message = std::move(message);
  return refusal;
}

Refusal Invalid(std::string message) { return Unauthenticated(RefusalReason::kCredentialsInvalid, std::move(message)); }

// The key that a call shows. Other schemes of `authorization` are somebody else's, such as a proxy's.
std::variant<std::optional<std::string_view>, Refusal> ShownKey(const Credentials& credentials) {
  std::vector<std::string_view> keys = credentials.x_api_key;
  for (const std::string_view value : credentials.authorization) {
    const std::string_view scheme = value.substr(0, kBearer.size());
    if (!absl::EqualsIgnoreCase({scheme.data(), scheme.size()}, {kBearer.data(), kBearer.size()})) continue;
    std::string_view key = value.substr(kBearer.size());
    while (!key.empty() && key.front() == ' ') key.remove_prefix(1);
    keys.push_back(key);
  }
  if (keys.empty()) return std::nullopt;
  if (std::any_of(keys.begin(), keys.end(), [&](std::string_view key) { return key != keys.front(); })) {
    return Invalid("the call shows two different API keys: give one, as 'authorization: Bearer KEY' or as x-api-key");
  }
  return keys.front();
}

}  // namespace

std::size_t FindDigest(std::span<const Sha256Digest> candidates, const Sha256Digest& wanted) {
  std::size_t found = candidates.size();
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const Sha256Digest& candidate = candidates[i];
    const std::uint64_t difference = (candidate[0] ^ wanted[0]) | (candidate[1] ^ wanted[1]) |
                                     (candidate[2] ^ wanted[2]) | (candidate[3] ^ wanted[3]);
    // All ones where they are equal: the top bit of d | -d is set for every d but 0.
    const std::size_t equal = ((difference | (0 - difference)) >> 63U) - 1;
    found = (found & ~equal) | (i & equal);
  }
  return found;
}

IdentityTable::IdentityTable(const IdentityOptions& options) {
  const auto has = [](const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  for (const IdentityOptions::ApiKey& key : options.api_keys) {
    const std::optional<Sha256Digest> digest = ParseSha256(key.sha256);
    BERTH_CHECK_MSG(digest.has_value(), key.id);
    digests_.push_back(*digest);
    keys_.push_back({key.id, key.tenant, key.admin, has(options.trusted_key_ids, key.id)});
  }
  for (const IdentityOptions::Subject& subject : options.subjects) subjects_[subject.subject].tenant = subject.tenant;
  for (const std::string& subject : options.trusted_subjects) subjects_[subject].trusted = true;
  needs_credentials_ = !keys_.empty() || !subjects_.empty();
  for (const std::string& subject : options.admin_subjects) subjects_[subject].admin = true;
}

const IdentityTable::Facts* IdentityTable::FindKey(std::string_view key) const {
  const std::size_t found = FindDigest(digests_, Sha256(key));
  return found < keys_.size() ? &keys_[found] : nullptr;
}

const IdentityTable::Facts* IdentityTable::FindSubject(std::span<const std::string_view> subjects,
                                                       std::string* found) const {
  for (const std::string_view subject : subjects) {
    found->assign(subject);
    if (const auto it = subjects_.find(*found); it != subjects_.end()) return &it->second;
  }
  return nullptr;
}

std::variant<IdentityTable::Match, Refusal> IdentityTable::Authenticate(const Credentials& credentials) const {
  std::string subject_name;
  const Facts* const subject = FindSubject(credentials.subjects, &subject_name);
  const Facts* key = nullptr;
  if (needs_credentials_) {
    auto shown = ShownKey(credentials);
    if (auto* refused = std::get_if<Refusal>(&shown)) return std::move(*refused);
    if (const auto& text = std::get<std::optional<std::string_view>>(shown)) {
      key = FindKey(*text);
      if (key == nullptr) return Invalid("the API key is not known here: check it, or ask the server's operator");
    }
    if (key == nullptr && subject == nullptr && !credentials.subjects.empty()) {
      return Invalid(absl::StrCat("the client certificate's subject '",
                                  std::string(CutAtCharacter(credentials.subjects.front(), 256)),
                                  "' is not known here: show an API key, or ask the server's operator"));
    }
    if (key == nullptr && subject == nullptr) {
      return Unauthenticated(RefusalReason::kCredentialsMissing,
                             "the call shows no API key: send it as 'authorization: Bearer KEY' or as x-api-key");
    }
  }
  Match match;
  for (const Facts* facts : {key, subject}) {
    if (facts == nullptr) continue;
    if (match.tenant.empty()) match.tenant = facts->tenant;
    match.admin = match.admin || facts->admin;
    match.trusted = match.trusted || facts->trusted;
  }
  if (key != nullptr) {
    match.credential = absl::StrCat("key:", key->id);
  } else if (subject != nullptr) {
    match.credential = absl::StrCat("subject:", subject_name);
  }
  return match;
}

TenantDirectory::TenantDirectory(const Policy& policy, Listener listener) : listener_(std::move(listener)) {
  SetPolicy(policy);
}

TenantId TenantDirectory::OtherLocked() const {
  const auto other = places_.find(kOther);
  return other != places_.end() ? other->second : policy_.default_tenant;
}

TenantId TenantDirectory::Find(std::string_view name, std::size_t known_tenants) {
  std::string wanted(name);
  const std::lock_guard lock(mutex_);
  if (const auto found = places_.find(wanted); found != places_.end()) {
    return Index(found->second) < known_tenants ? found->second : OtherLocked();
  }
  while (next_spare_ < policy_.tenants.size() && !policy_.tenants[next_spare_].name.empty()) ++next_spare_;
  if (next_spare_ >= std::min(known_tenants, policy_.tenants.size())) return OtherLocked();
  const auto place = static_cast<TenantId>(next_spare_++);
  policy_.tenants[Index(place)].name = wanted;
  places_.emplace(std::move(wanted), place);
  if (listener_) listener_(policy_);
  return place;
}

std::string TenantDirectory::NameOf(TenantId tenant) const {
  const std::lock_guard lock(mutex_);
  return tenant >= 0 && Index(tenant) < policy_.tenants.size() ? policy_.tenants[Index(tenant)].name : std::string();
}

Policy TenantDirectory::Named(Policy policy) const {
  const std::lock_guard lock(mutex_);
  const std::size_t both = std::min(policy.tenants.size(), policy_.tenants.size());
  for (std::size_t i = 0; i < both; ++i) {
    if (policy.tenants[i].name.empty()) policy.tenants[i].name = policy_.tenants[i].name;
  }
  return policy;
}

// Names given since `policy` was made are kept, unless it lists one elsewhere: then that is its place from now on, and
// the old one stays empty, as what runs there is still its own.
void TenantDirectory::SetPolicy(const Policy& policy) {
  const std::lock_guard lock(mutex_);
  Policy next = policy;
  std::unordered_map<std::string, TenantId> places;
  for (std::size_t i = 0; i < next.tenants.size(); ++i) {
    if (!next.tenants[i].name.empty()) places.emplace(next.tenants[i].name, static_cast<TenantId>(i));
  }
  for (const auto& [name, place] : places_) {
    if (Index(place) >= next.tenants.size() || !next.tenants[Index(place)].name.empty()) continue;
    if (places.emplace(name, place).second) next.tenants[Index(place)].name = name;
  }
  policy_ = std::move(next);
  places_ = std::move(places);
  if (listener_) listener_(policy_);
}

Callers::Callers(const IdentityOptions& options, const Policy& policy, TenantDirectory::Listener listener)
    : directory_(policy, std::move(listener)), table_(std::make_shared<const IdentityTable>(options)) {}

std::shared_ptr<const IdentityTable> Callers::table() const {
  const std::lock_guard lock(mutex_);
  return table_;
}

void Callers::SetIdentity(const IdentityOptions& options) {
  auto table = std::make_shared<const IdentityTable>(options);
  const std::lock_guard lock(mutex_);
  table_ = std::move(table);
}

std::variant<Caller, Refusal> Callers::Authenticate(const Credentials& credentials, const Policy& policy) {
  const std::shared_ptr<const IdentityTable> identities = table();
  std::variant<IdentityTable::Match, Refusal> result = identities->Authenticate(credentials);
  if (auto* refused = std::get_if<Refusal>(&result)) return std::move(*refused);
  auto& match = std::get<IdentityTable::Match>(result);
  Caller caller;
  caller.admin = match.admin;
  caller.trusted = match.trusted || !identities->needs_credentials();
  caller.credential = std::move(match.credential);
  if (!match.tenant.empty()) {
    caller.tenant = directory_.Find(match.tenant, policy.tenants.size());
    caller.tenant_name = std::move(match.tenant);
  } else if (caller.trusted) {
    caller.tenant = policy.default_tenant;
    caller.tenant_name = policy.tenants[Index(policy.default_tenant)].name;
  }
  return caller;
}

std::optional<Refusal> Callers::ResolveTenant(std::span<const TenantClaim> claims, const Policy& policy,
                                              Caller* caller) {
  if (!caller->trusted) {
    if (caller->tenant == kNoTenant) {
      return Invalid(absl::StrCat("the credential ", caller->credential,
                                  " speaks for no tenant: use one that does, such as an API key"));
    }
    for (const TenantClaim& claim : claims) {
      if (claim.name.empty() || claim.name == caller->tenant_name) continue;
      Refusal refusal;
      refusal.reason = RefusalReason::kTenantMismatch;
      refusal.message =
          absl::StrCat(claim.source, " names ", IsTenantName(claim.name) ? std::string(claim.name) : "another tenant",
                       ", but the call's credential speaks for ", caller->tenant_name, ": leave the name out");
      refusal.field = claim.source;
      return refusal;
    }
    return std::nullopt;
  }
  const auto claim = std::find_if(claims.begin(), claims.end(), [](const TenantClaim& c) { return !c.name.empty(); });
  if (claim == claims.end() || claim->name == caller->tenant_name) return std::nullopt;
  if (!IsTenantName(claim->name)) {
    Refusal refusal;
    refusal.reason = RefusalReason::kInvalidRequest;
    refusal.message = absl::StrCat(claim->source, " is no tenant's name: at most ", kMaxTenantNameBytes,
                                   " printable ASCII characters are taken");
    refusal.field = claim->source;
    return refusal;
  }
  caller->tenant = directory_.Find(claim->name, policy.tenants.size());
  caller->tenant_name = directory_.NameOf(caller->tenant);
  return std::nullopt;
}

}  // namespace berth
