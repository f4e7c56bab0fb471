// Who calls: from what a call shows of its caller to a tenant of the policy. The credential decides the tenant; only a
// trusted gateway, and anybody where no credentials are configured, may claim to call for another.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/sha256.h"
#include "berth/admission.h"
#include "berth/metrics.h"
#include "berth/policy.h"
#include "berth/units.h"

namespace berth {

// Whose credentials are taken. Tenants are told by name. Where there are neither keys nor subjects of tenants or of
// trusted gateways, no credentials are configured: a caller is whom it says it is.
struct IdentityOptions {
  struct ApiKey {
    std::string id;      // unique; what logs and errors call the key
    std::string sha256;  // of the key, 64 lower-case hexadecimal digits; unique
    std::string tenant;
    bool admin = false;
  };
  struct Subject {
    std::string subject;  // of a client certificate: its distinguished name as RFC 2253 writes it, or a URI in it
    std::string tenant;
  };
  std::vector<ApiKey> api_keys;
  std::vector<Subject> subjects;
  std::vector<std::string> trusted_key_ids;
  std::vector<std::string> trusted_subjects;
  std::vector<std::string> admin_subjects;
};

// What a call shows of its caller.
struct Credentials {
  std::vector<std::string_view> authorization;  // values of the header `authorization`
  std::vector<std::string_view> x_api_key;      // of `x-api-key`
  std::vector<std::string> subjects;            // of the client certificate that TLS verified: name, then URIs
};

// A tenant that the call names, and where: "tenant" (the field) or the header's name.
struct TenantClaim {
  const char* source = "";
  std::string_view name;
};

struct Caller {
  TenantId tenant = kNoTenant;  // kNoTenant: its credential speaks for no tenant, such as an operator's certificate
  std::string tenant_name;
  bool admin = false;      // may call berth.v1.Admin
  bool trusted = false;    // may name other tenants
  std::string credential;  // for logs: "key:ID" or "subject:NAME", never the key; empty = none was asked for
};

// Credentials alone; immutable, made anew for each policy. Keys are compared by their SHA-256 with every candidate, in
// a time that depends on the number of candidates only.
class IdentityTable {
 public:
  explicit IdentityTable(const IdentityOptions& options);

  struct Match {
    std::string tenant;  // empty = none
    bool admin = false;
    bool trusted = false;
    std::string credential;
  };
  // CREDENTIALS_MISSING, or CREDENTIALS_INVALID. A key that is shown must be known; it goes before the certificate for
  // the tenant, and what either may do, the caller may.
  std::variant<Match, Refusal> Authenticate(const Credentials& credentials) const;

  bool needs_credentials() const { return needs_credentials_; }

 private:
  struct KeyFacts {
    std::string id;
    std::string tenant;
    bool admin = false;
    bool trusted = false;
  };
  struct SubjectFacts {
    std::string tenant;
    bool admin = false;
    bool trusted = false;
  };

  std::optional<std::size_t> FindKey(std::string_view key) const;

  std::vector<Sha256Digest> digests_;  // of keys_, by the same index
  std::vector<KeyFacts> keys_;
  std::unordered_map<std::string, SubjectFacts> subjects_;
  bool needs_credentials_ = false;
};

// Names to tenants of the policy. A tenant that the policy does not list gets a place of its own when it first calls, as
// long as the policy has spare places (TenantPolicy without a name), then shares the one called `other`. It keeps its
// place for as long as the process lives, through every reload. Thread-safe.
class TenantDirectory {
 public:
  // Told of the policy with the names of all tenants in it, after a spare place got one. Any thread; must not call back.
  using NameListener = std::function<void(const Policy& named)>;

  TenantDirectory(const Policy& policy, NameListener listener);

  // Gives `name` a place if it has none.
  TenantId Find(std::string_view name);
  // Of a tenant that Find has told, or that the policy names; empty for others.
  std::string NameOf(TenantId tenant) const;
  // `policy` with the names that its spare places have been given. For what compares policies by name.
  Policy Named(Policy policy) const;
  // `policy` is in force: as CarryOver made it from Named(the one before).
  void SetPolicy(const Policy& policy);

 private:
  TenantId TakeSpareLocked(std::string_view name);
  void IndexLocked();

  const NameListener listener_;
  mutable std::mutex mutex_;
  Policy policy_;                                   // with names; guarded by mutex_
  std::unordered_map<std::string, TenantId> places_;  // guarded by mutex_
  std::size_t next_spare_ = 0;                      // no spare place is before it; guarded by mutex_
};

// What the services ask, for each call. Thread-safe.
class Callers {
 public:
  Callers(const IdentityOptions& options, const Policy& policy, TenantDirectory::NameListener listener = nullptr);

  // The first half, before the message is read: whose credential it is. The tenant is the credential's own, the
  // policy's default one where none is asked for.
  std::variant<Caller, Refusal> Authenticate(const Credentials& credentials) const;

  // The second half: for which tenant it calls. `claims` in the order in which they count; empty names claim nothing.
  // TENANT_MISMATCH where the caller may not, INVALID_REQUEST where a name that counts is none.
  std::optional<Refusal> ResolveTenant(std::span<const TenantClaim> claims, Caller* caller);

  // As TenantDirectory.
  std::string TenantName(TenantId tenant) const { return directory_.NameOf(tenant); }
  Policy Named(Policy policy) const { return directory_.Named(std::move(policy)); }

  // Once `policy` is in force in the engine: calls that come in from now on are judged by both.
  void Update(const IdentityOptions& options, const Policy& policy);

 private:
  std::shared_ptr<const IdentityTable> table() const;

  TenantDirectory directory_;
  mutable std::mutex mutex_;
  std::shared_ptr<const IdentityTable> table_;  // guarded by mutex_
};

}  // namespace berth
