// Who calls: from what a call shows of its caller to a tenant of the policy. The credential decides the tenant; only a
// trusted gateway, and anybody where no credentials are configured, may claim to call for another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/sha256.h"
#include "berth/admission.h"
#include "berth/metrics.h"
#include "berth/policy.h"
#include "berth/units.h"

namespace berth {

// Whose credentials are taken; tenants are told by name. Where there is neither a key nor a subject of a tenant or of a
// trusted gateway, no credentials are configured, and callers are whom they say they are.
struct IdentityOptions {
  struct ApiKey {
    std::string id;      // unique; what logs and errors call the key
    std::string sha256;  // of the key, 64 lower-case hexadecimal digits; unique
    std::string tenant;
    bool admin = false;
  };
  struct Subject {
    std::string subject;  // of a client certificate: its name as RFC 2253 writes it, or a URI in it
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
  std::vector<std::string_view> authorization = {};  // values of the header `authorization`
  std::vector<std::string_view> x_api_key = {};      // of `x-api-key`
  std::vector<std::string_view> subjects = {};  // of the client certificate that TLS verified: its name, then its URIs
};

// A tenant that the call names, and where: "tenant" (the field) or the header's name.
struct TenantClaim {
  const char* source = "";
  std::string_view name;  // empty = none
};

struct Caller {
  TenantId tenant = kNoTenant;  // kNoTenant: the credential speaks for none, such as an operator's certificate
  std::string tenant_name;
  bool admin = false;      // may call berth.v1.Admin
  bool trusted = false;    // may name other tenants
  std::string credential;  // for logs: "key:ID" or "subject:NAME", never the key; empty = none
};

// Credentials alone; immutable, made anew for each policy.
class IdentityTable {
 public:
  explicit IdentityTable(const IdentityOptions& options);

  struct Match {
    std::string tenant;  // empty = none
    bool admin = false;
    bool trusted = false;
    std::string credential;
  };
  // CREDENTIALS_MISSING, or CREDENTIALS_INVALID. A key that is shown must be a known one; it goes before the
  // certificate for the tenant, and what either may do, the caller may. Without credentials configured everybody
  // matches, keys are not looked at and only administrators' certificates make a difference.
  std::variant<Match, Refusal> Authenticate(const Credentials& credentials) const;

  bool needs_credentials() const { return needs_credentials_; }

 private:
  struct Facts {
    std::string id;  // of a key
    std::string tenant;
    bool admin = false;
    bool trusted = false;
  };

  const Facts* FindKey(std::string_view key) const;
  const Facts* FindSubject(std::span<const std::string_view> subjects, std::string* found) const;

  std::vector<Sha256Digest> digests_;  // of keys_, by the same index
  std::vector<Facts> keys_;
  std::unordered_map<std::string, Facts> subjects_;
  bool needs_credentials_ = false;
};

// Where `wanted` is among `candidates`; their number where it is not. Takes the same time for all that differ in
// nothing but bytes: every candidate is compared whole.
std::size_t FindDigest(std::span<const Sha256Digest> candidates, const Sha256Digest& wanted);

// Names to tenants of the policy. A tenant that the policy does not list gets a place of its own when it is first
// named, as long as there are spare places (TenantPolicy without a name), else it shares the tenant called `other`, or
// where there is none the default one. A place is kept for as long as the process lives, through every reload.
// Thread-safe.
class TenantDirectory {
 public:
  // Told of the policy with the names in it: at the start, when a spare place gets one, and by SetPolicy. One call at a
  // time, on any thread; must not call back.
  using Listener = std::function<void(const Policy& named)>;

  TenantDirectory(const Policy& policy, Listener listener);

  // Of the tenants that the engine knows so far, `known_tenants` of them; one beyond is as good as unlisted until then.
  TenantId Find(std::string_view name, std::size_t known_tenants);
  // Empty for places that no one has, and beyond them.
  std::string NameOf(TenantId tenant) const;

  // `policy` with the names that its spare places have been given: what CarryOver, which goes by names, must start
  // from.
  Policy Named(Policy policy) const;
  // `policy` is about to be given to the engine; made by CarryOver from Named(the one before).
  void SetPolicy(const Policy& policy);

 private:
  TenantId OtherLocked() const;

  const Listener listener_;
  mutable std::mutex mutex_;
  // Guarded by mutex_:
  Policy policy_;  // with names
  std::unordered_map<std::string, TenantId> places_;
  std::size_t next_spare_ = 0;  // places before it have or had a name
};

// What services ask for each call. Thread-safe.
//
// A reload goes so: SetPolicy(next), then the engine gets `next` and takes it in, then SetIdentity: who is let in by
// the new credentials meets the new policy.
class Callers {
 public:
  Callers(const IdentityOptions& options, const Policy& policy, TenantDirectory::Listener listener = nullptr);

  // The first half, before the message is read: whose credential it is. The caller's tenant is its credential's own, or
  // where none is needed the default one. `policy` is the engine's, as for the whole call.
  std::variant<Caller, Refusal> Authenticate(const Credentials& credentials, const Policy& policy);
  // The second half: for whom it calls. `claims` in the order in which they count. TENANT_MISMATCH where the caller may
  // not, INVALID_REQUEST where the name that counts is none; CREDENTIALS_INVALID where it speaks for no tenant.
  std::optional<Refusal> ResolveTenant(std::span<const TenantClaim> claims, const Policy& policy, Caller* caller);

  // As TenantDirectory.
  std::string TenantName(TenantId tenant) const { return directory_.NameOf(tenant); }
  Policy Named(Policy policy) const { return directory_.Named(std::move(policy)); }
  void SetPolicy(const Policy& policy) { directory_.SetPolicy(policy); }

  void SetIdentity(const IdentityOptions& options);

 private:
  std::shared_ptr<const IdentityTable> table() const;

  TenantDirectory directory_;
  mutable std::mutex mutex_;
  std::shared_ptr<const IdentityTable> table_;  // guarded by mutex_
};

}  // namespace berth
