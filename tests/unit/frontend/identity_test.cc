#include "frontend/identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace berth {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// As a policy file would resolve: named tenants, then spare places, then `other`.
Policy PolicyOf(const std::vector<std::string>& tenants, int spares) {
  Policy policy;
  policy.classes.emplace_back().name = "only";
  for (const std::string& name : tenants) {
    if (name == "default") policy.default_tenant = static_cast<TenantId>(policy.tenants.size());
    policy.tenants.emplace_back().name = name;
  }
  for (int i = 0; i < spares; ++i) policy.tenants.emplace_back();
  if (spares > 0) policy.tenants.emplace_back().name = "other";
  return policy;
}

IdentityOptions::ApiKey Key(const std::string& id, const std::string& key, const std::string& tenant,
                            bool admin = false) {
  return {id, Sha256Hex(key), tenant, admin};
}

// Acme has two keys and a certificate; Bert one key that may do anything; a gateway a key and a certificate.
IdentityOptions SomeIdentities() {
  IdentityOptions options;
  options.api_keys = {Key("acme-1", "old secret", "acme"), Key("acme-2", "new secret", "acme"),
                      Key("bert-1", "bert's", "bert", /*admin=*/true), Key("gate-1", "gate's", "default")};
  options.subjects = {{"CN=acme,O=Acme", "acme"}, {"spiffe://here/bert", "bert"}};
  options.trusted_key_ids = {"gate-1"};
  options.trusted_subjects = {"CN=gate"};
  options.admin_subjects = {"CN=root", "CN=acme,O=Acme"};
  return options;
}

class IdentityTest : public ::testing::Test {
 protected:
  // A call with these credentials and this tenant field.
  std::variant<Caller, Refusal> Call(const Credentials& credentials, std::string_view tenant = {}) {
    return CallWith(credentials, {{"tenant", tenant}});
  }
  std::variant<Caller, Refusal> CallWith(const Credentials& credentials, const std::vector<TenantClaim>& claims) {
    std::variant<Caller, Refusal> caller = callers_.Authenticate(credentials, policy_);
    if (std::holds_alternative<Refusal>(caller)) return caller;
    if (auto refused = callers_.ResolveTenant(claims, policy_, &std::get<Caller>(caller))) return *refused;
    return caller;
  }
  Caller Accept(const std::variant<Caller, Refusal>& result) {
    if (const auto* refusal = std::get_if<Refusal>(&result)) {
      ADD_FAILURE() << refusal->message;
      return {};
    }
    return std::get<Caller>(result);
  }
  RefusalReason Reason(const std::variant<Caller, Refusal>& result) {
    const auto* refusal = std::get_if<Refusal>(&result);
    if (refusal == nullptr) {
      ADD_FAILURE() << "let in as " << std::get<Caller>(result).tenant_name;
      return RefusalReason::kInvalidRequest;
    }
    EXPECT_EQ(refusal->message.find('\n'), std::string::npos);
    EXPECT_FALSE(refusal->retry_after.has_value());
    return refusal->reason;
  }

  Policy policy_ = PolicyOf({"acme", "bert", "default", "carl"}, 3);
  Callers callers_{SomeIdentities(), policy_};
};

TEST_F(IdentityTest, AKeySpeaksForItsTenant) {
  for (const Credentials& credentials : {
           Credentials{.authorization = {"Bearer new secret"}},
           Credentials{.authorization = {"bearer  old secret"}},
           Credentials{.x_api_key = {"new secret"}},
           Credentials{.authorization = {"Bearer new secret"}, .x_api_key = {"new secret"}},
           Credentials{.authorization = {"Basic dXNlcjpwYXNz"}, .x_api_key = {"old secret"}},
       }) {
    const Caller caller = Accept(Call(credentials));
    EXPECT_EQ(caller.tenant, 0);
    EXPECT_EQ(caller.tenant_name, "acme");
    EXPECT_FALSE(caller.admin);
    EXPECT_FALSE(caller.trusted);
    EXPECT_THAT(caller.credential, testing::StartsWith("key:acme-"));
  }
  const Caller bert = Accept(Call({.x_api_key = {"bert's"}}));
  EXPECT_EQ(bert.tenant, 1);
  EXPECT_TRUE(bert.admin);
  EXPECT_EQ(bert.credential, "key:bert-1");
}

TEST_F(IdentityTest, ACertificateSpeaksForItsTenantByNameOrUri) {
  const Caller acme = Accept(Call({.subjects = {"CN=acme,O=Acme"}}));
  EXPECT_EQ(acme.tenant_name, "acme");
  EXPECT_EQ(acme.credential, "subject:CN=acme,O=Acme");
  EXPECT_TRUE(acme.admin);
  const Caller bert = Accept(Call({.subjects = {"CN=whoever", "spiffe://here/bert"}}));
  EXPECT_EQ(bert.tenant_name, "bert");
  EXPECT_EQ(bert.credential, "subject:spiffe://here/bert");
  EXPECT_FALSE(bert.admin) << "a certificate's rights are its own, not those of its tenant's keys";
}

TEST_F(IdentityTest, AKeyGoesBeforeACertificateAndRightsAddUp) {
  const Caller both = Accept(Call({.x_api_key = {"bert's"}, .subjects = {"CN=gate"}}));
  EXPECT_EQ(both.tenant_name, "bert");
  EXPECT_TRUE(both.admin);
  EXPECT_TRUE(both.trusted);
  EXPECT_EQ(Reason(Call({.x_api_key = {"wrong"}, .subjects = {"CN=acme,O=Acme"}})), RefusalReason::kCredentialsInvalid);
}

TEST_F(IdentityTest, WithoutGoodCredentialsNobodyComesIn) {
  const std::string hash = Sha256Hex("new secret");
  EXPECT_EQ(Reason(Call({})), RefusalReason::kCredentialsMissing);
  EXPECT_EQ(Reason(Call({}, "acme")), RefusalReason::kCredentialsMissing);
  EXPECT_EQ(Reason(Call({.authorization = {"Basic dXNlcjpwYXNz"}})), RefusalReason::kCredentialsMissing);
  EXPECT_EQ(Reason(Call({.authorization = {"Bearer"}})), RefusalReason::kCredentialsMissing);
  for (const Credentials& credentials : {
           Credentials{.authorization = {"Bearer "}},
           Credentials{.authorization = {"Bearer new secre"}},
           Credentials{.authorization = {"Bearer new secret "}},
           Credentials{.x_api_key = {""}},
           Credentials{.x_api_key = {hash}},
           Credentials{.authorization = {"Bearer new secret", "Bearer old secret"}},
           Credentials{.authorization = {"Bearer new secret"}, .x_api_key = {"old secret"}},
           Credentials{.subjects = {"CN=stranger"}},
           Credentials{.subjects = {"CN=acme,O=Acme,"}},
       }) {
    EXPECT_EQ(Reason(Call(credentials)), RefusalReason::kCredentialsInvalid);
  }
}

TEST_F(IdentityTest, NoRefusalRepeatsAKey) {
  for (const Credentials& credentials :
       {Credentials{.x_api_key = {"hunter2"}}, Credentials{.authorization = {"Bearer hunter2"}},
        Credentials{.authorization = {"Bearer hunter2"}, .x_api_key = {"hunter3"}},
        Credentials{.authorization = {"hunter2"}}}) {
    EXPECT_THAT(std::get<Refusal>(Call(credentials)).message, Not(HasSubstr("hunter")));
  }
}

TEST_F(IdentityTest, AnOperatorsCertificateIsNoTenants) {
  std::variant<Caller, Refusal> caller = callers_.Authenticate({.subjects = {"CN=root"}}, policy_);
  const Caller root = Accept(caller);
  EXPECT_TRUE(root.admin);
  EXPECT_EQ(root.tenant, kNoTenant);
  EXPECT_EQ(Reason(Call({.subjects = {"CN=root"}})), RefusalReason::kCredentialsInvalid);
}

TEST_F(IdentityTest, AClaimThatDiffersIsAMismatchWhereverItStands) {
  const Credentials acme{.x_api_key = {"new secret"}};
  EXPECT_EQ(Accept(Call(acme, "acme")).tenant_name, "acme");
  for (const char* source : {"tenant", "x-berth-tenant", "x-llm-d-inference-fairness-id"}) {
    const auto refused = CallWith(acme, {{"tenant", "acme"}, {source, "bert"}});
    EXPECT_EQ(Reason(refused), RefusalReason::kTenantMismatch);
    EXPECT_EQ(std::get<Refusal>(refused).field, source);
    EXPECT_THAT(std::get<Refusal>(refused).message, HasSubstr(source));
  }
}

TEST_F(IdentityTest, ATrustedGatewayNamesWhomItLikesAndTheFirstNameCounts) {
  for (const Credentials& gate : {Credentials{.x_api_key = {"gate's"}}, Credentials{.subjects = {"CN=gate"}}}) {
    EXPECT_EQ(Accept(Call(gate)).tenant_name, "default");
    EXPECT_EQ(Accept(CallWith(gate, {{"tenant", ""}, {"x-berth-tenant", "carl"}, {"f", "bert"}})).tenant_name, "carl");
    EXPECT_EQ(Accept(CallWith(gate, {{"tenant", "bert"}, {"x-berth-tenant", "carl"}})).tenant, 1);
    EXPECT_EQ(Accept(Call(gate, "a-new-one")).tenant, 4);
    EXPECT_EQ(Reason(Call(gate, "new\nline")), RefusalReason::kInvalidRequest);
    EXPECT_EQ(Reason(Call(gate, "é")), RefusalReason::kInvalidRequest);
    EXPECT_EQ(Reason(Call(gate, std::string(129, 'x'))), RefusalReason::kInvalidRequest);
  }
}

TEST_F(IdentityTest, WithoutCredentialsConfiguredTheClaimCounts) {
  IdentityOptions options;
  options.admin_subjects = {"CN=root"};
  callers_.SetIdentity(options);
  EXPECT_EQ(Accept(Call({})).tenant_name, "default");
  EXPECT_EQ(Accept(Call({}, "acme")).tenant, 0);
  EXPECT_EQ(Accept(Call({.authorization = {"Bearer anything"}}, "bert")).tenant, 1);
  EXPECT_FALSE(Accept(Call({})).admin);
  EXPECT_TRUE(Accept(Call({.subjects = {"CN=root"}})).admin);
}

TEST_F(IdentityTest, UnlistedTenantsGetPlacesOfTheirOwnThenShareOther) {
  callers_.SetIdentity({});
  EXPECT_EQ(Accept(Call({}, "u1")).tenant, 4);
  EXPECT_EQ(Accept(Call({}, "u2")).tenant, 5);
  EXPECT_EQ(Accept(Call({}, "u1")).tenant, 4);
  EXPECT_EQ(Accept(Call({}, "u3")).tenant, 6);
  const Caller late = Accept(Call({}, "u4"));
  EXPECT_EQ(late.tenant, 7);
  EXPECT_EQ(late.tenant_name, "other");
  EXPECT_EQ(Accept(Call({}, "other")).tenant, 7);
  EXPECT_EQ(callers_.TenantName(5), "u2");
  EXPECT_EQ(callers_.TenantName(8), "");
  EXPECT_EQ(callers_.TenantName(kNoTenant), "");
}

TEST_F(IdentityTest, NewCredentialsAreInForceFromTheNextCall) {
  EXPECT_EQ(Reason(Call({.x_api_key = {"rotated"}})), RefusalReason::kCredentialsInvalid);
  IdentityOptions options = SomeIdentities();
  options.api_keys[0] = Key("acme-1", "rotated", "acme");
  callers_.SetIdentity(options);
  EXPECT_EQ(Accept(Call({.x_api_key = {"rotated"}})).tenant_name, "acme");
  EXPECT_EQ(Reason(Call({.x_api_key = {"old secret"}})), RefusalReason::kCredentialsInvalid);
}

TEST(FindDigest, ComparesEveryBitOfEveryCandidate) {
  const Sha256Digest wanted = Sha256("wanted");
  std::vector<Sha256Digest> candidates;
  for (int bit = 0; bit < 256; ++bit) {
    Sha256Digest near = wanted;
    near[static_cast<std::size_t>(bit) / 64] ^= std::uint64_t{1} << (static_cast<unsigned>(bit) % 64);
    candidates.push_back(near);
  }
  EXPECT_EQ(FindDigest(candidates, wanted), candidates.size());
  for (const std::size_t place : {std::size_t{0}, std::size_t{100}, candidates.size()}) {
    std::vector<Sha256Digest> with = candidates;
    with.insert(with.begin() + static_cast<std::ptrdiff_t>(place), wanted);
    EXPECT_EQ(FindDigest(with, wanted), place);
  }
  EXPECT_EQ(FindDigest({}, wanted), 0u);
}

// What a reload makes of the places: `listed` at the places their names have, else behind.
Policy Reloaded(const Policy& running, const std::vector<std::string>& listed) {
  Policy next = running;
  for (const std::string& name : listed) {
    const auto found = std::find_if(next.tenants.begin(), next.tenants.end(),
                                    [&](const TenantPolicy& tenant) { return tenant.name == name; });
    if (found == next.tenants.end()) next.tenants.emplace_back().name = name;
  }
  return next;
}

TEST(TenantDirectory, ATenantKeepsItsPlaceThroughRandomReloads) {
  std::mt19937 random(7);  // NOLINT: the same run every time
  Policy in_force = PolicyOf({"default", "t0", "t1"}, 50);
  TenantDirectory directory(in_force, nullptr);
  std::map<std::string, TenantId> places;
  std::map<TenantId, std::string> owners;
  const TenantId other = 53;
  for (int turn = 0; turn < 5000; ++turn) {
    if (random() % 50 == 0) {
      std::vector<std::string> listed;
      for (int i = 0; i < 5; ++i) listed.push_back("t" + std::to_string(random() % 120));
      const Policy next = Reloaded(directory.Named(in_force), listed);
      directory.SetPolicy(next);
      // Those who only got the shared place now have one of their own.
      std::erase_if(places, [&](const auto& entry) { return entry.second == other; });
      in_force = next;
    }
    const std::string name = "t" + std::to_string(random() % 120);
    const TenantId place = directory.Find(name, in_force.tenants.size());
    const auto [known, is_new] = places.emplace(name, place);
    ASSERT_EQ(known->second, place) << name << " has moved";
    if (place == other) continue;
    ASSERT_EQ(owners.emplace(place, name).first->second, name) << "two tenants in one place";
    ASSERT_EQ(directory.NameOf(place), name);
  }
  EXPECT_GT(places.size(), 100u);
}

TEST(TenantDirectory, ANameGivenWhileAReloadIsMadeIsKept) {
  Policy running = PolicyOf({"default"}, 4);
  TenantDirectory directory(running, nullptr);
  EXPECT_EQ(directory.Find("early", running.tenants.size()), 1);
  const Policy next = Reloaded(directory.Named(running), {"both", "late"});
  EXPECT_EQ(directory.Find("both", running.tenants.size()), 2);
  EXPECT_EQ(directory.Find("mid", running.tenants.size()), 3);
  directory.SetPolicy(next);
  EXPECT_EQ(directory.Find("early", next.tenants.size()), 1);
  EXPECT_EQ(directory.Find("mid", next.tenants.size()), 3);
  EXPECT_EQ(directory.Find("both", next.tenants.size()), 6) << "where the policy lists it";
  EXPECT_EQ(directory.NameOf(2), "") << "and its old place stays nobody's";
  EXPECT_EQ(directory.Find("next", next.tenants.size()), 4);
}

TEST(TenantDirectory, WhomTheEngineDoesNotKnowYetIsServedAsOther) {
  Policy running = PolicyOf({"default"}, 1);
  TenantDirectory directory(running, nullptr);
  directory.SetPolicy(Reloaded(running, {"new"}));
  EXPECT_EQ(directory.Find("new", running.tenants.size()), 2);
  EXPECT_EQ(directory.Find("new", running.tenants.size() + 1), 3);
}

TEST(TenantDirectory, WithoutSparePlacesUnlistedTenantsAreTheDefaultOne) {
  const Policy policy = PolicyOf({"acme", "default"}, 0);
  TenantDirectory directory(policy, nullptr);
  EXPECT_EQ(directory.Find("who", policy.tenants.size()), 1);
}

TEST(TenantDirectory, TheListenerHearsOfEveryNameOnce) {
  std::vector<std::vector<std::string>> told;
  TenantDirectory directory(PolicyOf({"default"}, 2), [&](const Policy& named) {
    auto& names = told.emplace_back();
    for (const TenantPolicy& tenant : named.tenants) names.push_back(tenant.name);
  });
  for (const char* name : {"a", "a", "b", "c", "default"}) directory.Find(name, 4);
  EXPECT_THAT(told, ElementsAre(ElementsAre("default", "", "", "other"), ElementsAre("default", "a", "", "other"),
                                ElementsAre("default", "a", "b", "other")));
}

TEST(TenantDirectory, ManyThreadsAgreeOnThePlaces) {
  constexpr int kNames = 40;
  const Policy policy = PolicyOf({"default"}, 30);
  TenantDirectory directory(policy, nullptr);
  std::vector<std::map<std::string, TenantId>> seen(4);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < seen.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) {
        const std::string name = "n" + std::to_string((i * 7 + static_cast<int>(t) * 13) % kNames);
        const TenantId place = directory.Find(name, policy.tenants.size());
        EXPECT_EQ(seen[t].emplace(name, place).first->second, place);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& each : seen) EXPECT_EQ(each, seen.front());
}

}  // namespace
}  // namespace berth
