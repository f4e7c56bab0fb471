#include "config/policy_reloader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/sha256.h"
#include "config/file_watch.h"
#include "policy_cases.h"
#include "temp_folder.h"

namespace berth {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

std::string WithGuarantee(int percent) {
  return "version: 1\nclasses: {interactive: {kv_guarantee: " + std::to_string(percent) +
         "%, kv_borrowing_limit: 10%}}\n";
}

// A server's part: what it was started with, what is in force, what it was told.
class ReloaderTest : public ::testing::Test {
 protected:
  void Start(const std::string& name, bool watch) {
    path_ = folder_ / name;
    Diagnostics diagnostics(path_);
    PolicyFile running = ReadPolicyFile(path_, Severity::kError, &diagnostics);
    ASSERT_TRUE(diagnostics.ok());
    PolicyReloader::Options options;
    options.path = path_;
    options.context = test::SmallPool();
    options.settle_time = std::chrono::milliseconds(1);
    options.check = [this](const ServerConfig&, const Policy&) { return unfit_; };
    reloader_ = std::make_unique<PolicyReloader>(
        options, std::move(running),
        [this](ServerConfig* config) {
          if (override_) override_(config);
        },
        [this](const ServerConfig&, const Policy& policy) {
          const std::lock_guard lock(mutex_);
          if (!refusal_.ok()) return refusal_;
          in_force_.push_back(policy.classes[0].kv_guarantee_blocks);
          return absl::OkStatus();
        },
        [this](const ReloadReport& report) {
          const std::lock_guard lock(mutex_);
          reports_.push_back(report);
          told_.notify_all();
        });
    if (watch) {
      ASSERT_TRUE(reloader_->Start(true).ok());
    }
  }

  // Waits until a report satisfies `enough`; the ones before it are passed over.
  ReloadReport WaitFor(const std::function<bool(const ReloadReport&)>& enough) {
    std::unique_lock lock(mutex_);
    for (;;) {
      told_.wait(lock, [this] { return !reports_.empty(); });
      const ReloadReport report = reports_.front();
      reports_.pop_front();
      if (enough(report)) return report;
    }
  }
  ReloadReport WaitForHashOf(const std::string& text) {
    return WaitFor([hash = Sha256Hex(text)](const ReloadReport& report) { return report.sha256 == hash; });
  }
  std::vector<std::int64_t> InForce() {
    const std::lock_guard lock(mutex_);
    return in_force_;
  }
  std::int64_t LastInForce() { return InForce().back(); }

  const test::TempFolder folder_;
  std::string path_;
  std::function<void(ServerConfig*)> override_;
  absl::Status refusal_;
  absl::Status unfit_;

  std::mutex mutex_;
  std::condition_variable told_;
  std::deque<ReloadReport> reports_;
  std::vector<std::int64_t> in_force_;

  std::unique_ptr<PolicyReloader> reloader_;  // last: its thread calls the rest
};

TEST_F(ReloaderTest, AGoodFileComesInForceWithItsChangesTold) {
  folder_.Write("p.yaml", WithGuarantee(50));
  Start("p.yaml", false);
  folder_.Write("p.yaml", WithGuarantee(60));
  const ReloadReport report = reloader_->Reload({});
  EXPECT_TRUE(report.ok) << report.error;
  EXPECT_THAT(report.changes, ElementsAre(Change{"classes.interactive.kv_guarantee", "50%", "60%", Effect::kLive}));
  EXPECT_EQ(report.sha256, Sha256Hex(WithGuarantee(60)));
  EXPECT_EQ(reloader_->running_sha256(), report.sha256);
  EXPECT_THAT(InForce(), ElementsAre(60));
  EXPECT_EQ(reports_.size(), 1u);
}

TEST_F(ReloaderTest, ADryRunMayJudgeAnotherTextInTheFilesPlaceAndChangesNothing) {
  folder_.Write("p.yaml", WithGuarantee(50));
  Start("p.yaml", false);
  const std::string before = reloader_->running_sha256();
  const ReloadReport report = reloader_->Reload({.dry_run = true, .text = WithGuarantee(60)});
  EXPECT_TRUE(report.ok) << report.error;
  EXPECT_THAT(report.changes, ElementsAre(Change{"classes.interactive.kv_guarantee", "50%", "60%", Effect::kLive}));
  EXPECT_EQ(report.sha256, Sha256Hex(WithGuarantee(60)));
  ASSERT_TRUE(report.policy.has_value());
  EXPECT_EQ(report.policy->classes[0].kv_guarantee_blocks, 60);
  const ReloadReport bad = reloader_->Reload({.dry_run = true, .text = "version: 1\nfrobnicate: 1\n"});
  EXPECT_FALSE(bad.ok);
  EXPECT_FALSE(bad.policy.has_value());
  ASSERT_EQ(bad.findings.size(), 1u);
  EXPECT_THAT(bad.findings[0], HasSubstr("policy:2:1: error: unknown key"));
  EXPECT_EQ(reloader_->running_sha256(), before);
  EXPECT_THAT(InForce(), IsEmpty());
  EXPECT_TRUE(reports_.empty());
}

TEST_F(ReloaderTest, WhatTheServerCannotTakeIsToldInADryRunToo) {
  folder_.Write("p.yaml", WithGuarantee(50));
  Start("p.yaml", false);
  folder_.Write("p.yaml", WithGuarantee(60));
  unfit_ = absl::FailedPreconditionError("too large for me");
  for (const bool dry_run : {true, false}) {
    const ReloadReport report = reloader_->Reload({.dry_run = dry_run});
    EXPECT_FALSE(report.ok);
    EXPECT_EQ(report.error, path_ + ": too large for me; the running policy stays in force");
  }
  EXPECT_THAT(InForce(), IsEmpty());
}

TEST_F(ReloaderTest, ABadFileChangesNothingAndSaysWhy) {
  folder_.Write("p.yaml", WithGuarantee(50));
  Start("p.yaml", false);
  const std::string before = reloader_->running_sha256();
  folder_.Write("p.yaml", "version: 1\nclasses: {interactive: {kv_guarantee: 150%}}\nfrobnicate: 1\n");
  const ReloadReport report = reloader_->Reload({});
  EXPECT_FALSE(report.ok);
  EXPECT_EQ(report.error, path_ + ": 2 errors; the running policy stays in force");
  ASSERT_EQ(report.findings.size(), 2u);
  EXPECT_EQ(report.findings[0], path_ +
                                    ":2:25: error: classes.interactive.kv_guarantee: \"150%\" is more than all of "
                                    "it; at most 100%");
  EXPECT_THAT(InForce(), IsEmpty());
  EXPECT_EQ(reloader_->running_sha256(), before);

  // The next good one is compared with what still runs.
  folder_.Write("p.yaml", WithGuarantee(70));
  EXPECT_THAT(reloader_->Reload({}).changes,
              ElementsAre(Change{"classes.interactive.kv_guarantee", "50%", "70%", Effect::kLive}));
}

TEST_F(ReloaderTest, APolicyThatThePoolCannotKeepChangesNothing) {
  folder_.Write("p.yaml", WithGuarantee(50));
  Start("p.yaml", false);
  folder_.Write("p.yaml", "version: 1\nclasses: {interactive: {kv_guarantee: 101}}\n");
  EXPECT_THAT(reloader_->Reload({}).findings, ElementsAre(HasSubstr("add up to 101 blocks")));
  EXPECT_THAT(InForce(), IsEmpty());
}

TEST_F(ReloaderTest, AKeyThatTakesARestartRefusesTheWholeFileByName) {
  folder_.Write("p.yaml", WithGuarantee(50));
  Start("p.yaml", false);
  folder_.Write("p.yaml", WithGuarantee(60) + "kv_cache: {block_tokens: 32}\n");
  const ReloadReport report = reloader_->Reload({});
  EXPECT_FALSE(report.ok);
  EXPECT_THAT(report.findings, ElementsAre(path_ + ":3:12: error: kv_cache.block_tokens: changed from 16 to 32, which "
                                                   "takes a restart; put it back, or restart the server"));
  EXPECT_THAT(InForce(), IsEmpty());
}

TEST_F(ReloaderTest, WhatTheServerRefusesStaysOut) {
  folder_.Write("p.yaml", WithGuarantee(50));
  Start("p.yaml", false);
  folder_.Write("p.yaml", WithGuarantee(60));
  refusal_ = absl::FailedPreconditionError("draining");
  const ReloadReport report = reloader_->Reload({});
  EXPECT_FALSE(report.ok);
  EXPECT_EQ(report.error, path_ + ": draining; the running policy stays in force");
  EXPECT_EQ(reloader_->running_sha256(), Sha256Hex(WithGuarantee(50)));
}

TEST_F(ReloaderTest, ADryRunTellsWhatWouldHappenAndNothingDoes) {
  folder_.Write("p.yaml", WithGuarantee(50));
  Start("p.yaml", false);
  folder_.Write("p.yaml", WithGuarantee(60));
  const ReloadReport report = reloader_->Reload({.dry_run = true, .expected_sha256 = ""});
  EXPECT_TRUE(report.ok);
  EXPECT_EQ(report.changes.size(), 1u);
  EXPECT_THAT(InForce(), IsEmpty());
  EXPECT_THAT(reports_, IsEmpty());
  EXPECT_EQ(reloader_->running_sha256(), Sha256Hex(WithGuarantee(50)));
}

TEST_F(ReloaderTest, AFileThatIsNotTheExpectedOneIsRefused) {
  folder_.Write("p.yaml", WithGuarantee(50));
  Start("p.yaml", false);
  folder_.Write("p.yaml", WithGuarantee(60));
  const std::string hash = Sha256Hex(WithGuarantee(60));
  const ReloadReport report = reloader_->Reload({.dry_run = false, .expected_sha256 = Sha256Hex("another")});
  EXPECT_FALSE(report.ok);
  EXPECT_THAT(report.findings, ElementsAre(HasSubstr("the file's SHA-256 is " + hash + ", not the expected")));
  EXPECT_TRUE(reloader_->Reload({.dry_run = false, .expected_sha256 = hash}).ok);
}

TEST_F(ReloaderTest, TheCommandLineOverridesEachNewFileAsItDidTheFirst) {
  folder_.Write("p.yaml", WithGuarantee(50));
  override_ = [](ServerConfig* config) { config->classes[0].kv_guarantee = PercentOf(33); };
  Start("p.yaml", false);
  folder_.Write("p.yaml", WithGuarantee(60));
  EXPECT_TRUE(reloader_->Reload({}).ok);
  EXPECT_THAT(InForce(), ElementsAre(33));
}

TEST_F(ReloaderTest, ARequestIsServedOnTheReloadersThread) {
  folder_.Write("p.yaml", WithGuarantee(50));
  Start("p.yaml", false);
  ASSERT_TRUE(reloader_->Start(false).ok());
  folder_.Write("p.yaml", WithGuarantee(60));
  reloader_->RequestReload();
  EXPECT_TRUE(WaitForHashOf(WithGuarantee(60)).ok);
  // Unchanged is told as well: somebody asked.
  reloader_->RequestReload();
  EXPECT_TRUE(WaitForHashOf(WithGuarantee(60)).ok);
}

TEST_F(ReloaderTest, AFileWrittenInPlaceIsTakenIn) {
  folder_.Write("p.yaml", WithGuarantee(50));
  Start("p.yaml", true);
  folder_.Write("p.yaml", WithGuarantee(60));
  EXPECT_TRUE(WaitForHashOf(WithGuarantee(60)).ok);
  EXPECT_EQ(LastInForce(), 60);
  folder_.Write("p.yaml", WithGuarantee(70));
  EXPECT_TRUE(WaitForHashOf(WithGuarantee(70)).ok);
  EXPECT_EQ(LastInForce(), 70);
}

TEST_F(ReloaderTest, AFileReplacedByAnotherIsTakenInEachTime) {
  folder_.Write("p.yaml", WithGuarantee(50));
  Start("p.yaml", true);
  for (const int percent : {60, 70, 80}) {
    folder_.Replace("p.yaml", WithGuarantee(percent));
    EXPECT_TRUE(WaitForHashOf(WithGuarantee(percent)).ok);
    EXPECT_EQ(LastInForce(), percent);
  }
}

TEST_F(ReloaderTest, KubernetesSwapOfTheDataLinkIsTakenInEachTime) {
  folder_.Write("..2025_1/p.yaml", WithGuarantee(50));
  folder_.Link("..data", "..2025_1");
  folder_.Link("p.yaml", "..data/p.yaml");
  Start("p.yaml", true);
  for (int version = 2; version < 6; ++version) {
    const std::string text = WithGuarantee(50 + version);
    folder_.Write("..2025_" + std::to_string(version) + "/p.yaml", text);
    folder_.Link("..data", "..2025_" + std::to_string(version));
    std::filesystem::remove_all(folder_ / ("..2025_" + std::to_string(version - 1)));
    EXPECT_TRUE(WaitForHashOf(text).ok);
    EXPECT_EQ(LastInForce(), 50 + version);
  }
}

TEST_F(ReloaderTest, ALinkFurtherUpThePathIsFollowedWhenItMoves) {
  folder_.Write("releases/1/conf/p.yaml", WithGuarantee(50));
  folder_.Write("releases/2/conf/p.yaml", WithGuarantee(60));
  folder_.Link("current", "releases/1");
  Start("current/conf/p.yaml", true);
  folder_.Link("current", "releases/2");
  EXPECT_TRUE(WaitForHashOf(WithGuarantee(60)).ok);
  folder_.Write("releases/2/conf/p.yaml", WithGuarantee(70));
  EXPECT_TRUE(WaitForHashOf(WithGuarantee(70)).ok);
}

TEST_F(ReloaderTest, AFolderThatAnotherTakesThePlaceOfIsTakenInEachTime) {
  folder_.Write("site/conf/p.yaml", WithGuarantee(50));
  Start("site/conf/p.yaml", true);
  int moved = 0;
  for (int percent = 51; percent < 57; percent += 2) {
    // The file's own folder, and the one above it.
    for (const std::string place : {"site/conf", "site"}) {
      const std::string text = WithGuarantee(percent + (place == "site" ? 1 : 0));
      folder_.Write(place == "site" ? "next/conf/p.yaml" : "next/p.yaml", text);
      std::filesystem::rename(folder_ / place, folder_ / ("before" + std::to_string(++moved)));
      std::filesystem::rename(folder_ / "next", folder_ / place);
      EXPECT_TRUE(WaitForHashOf(text).ok);
      folder_.Write("site/conf/p.yaml", WithGuarantee(percent + 20));
      EXPECT_TRUE(WaitForHashOf(WithGuarantee(percent + 20)).ok) << "the new folder is not watched";
    }
  }
}

TEST_F(ReloaderTest, AFolderThatIsRemovedAndMadeAnewIsTakenIn) {
  folder_.Write("site/conf/p.yaml", WithGuarantee(50));
  Start("site/conf/p.yaml", true);
  for (int percent = 51; percent < 54; ++percent) {
    std::filesystem::remove_all(folder_ / "site");
    EXPECT_FALSE(WaitFor([](const ReloadReport& report) { return !report.ok; }).ok);
    folder_.Write("site/conf/p.yaml", WithGuarantee(percent));
    EXPECT_TRUE(WaitForHashOf(WithGuarantee(percent)).ok);
  }
}

TEST_F(ReloaderTest, ABadFileIsToldOnceAndTheGoodOneAfterItTakenIn) {
  folder_.Write("p.yaml", WithGuarantee(50));
  Start("p.yaml", true);
  const std::string bad = "version: 2\n";
  folder_.Replace("p.yaml", bad);
  EXPECT_FALSE(WaitForHashOf(bad).ok);
  folder_.Replace("p.yaml", WithGuarantee(60));
  EXPECT_TRUE(WaitFor([](const ReloadReport&) { return true; }).ok) << "the bad file was told twice";
  EXPECT_THAT(InForce(), ElementsAre(60));
}

TEST_F(ReloaderTest, AFileThatGoesAwayLeavesThePolicyAndMayComeBack) {
  folder_.Write("p.yaml", WithGuarantee(50));
  Start("p.yaml", true);
  std::filesystem::remove(folder_ / "p.yaml");
  const ReloadReport gone = WaitFor([](const ReloadReport& report) { return !report.ok; });
  EXPECT_THAT(gone.findings, ElementsAre(path_ + ": error: No such file or directory"));
  folder_.Write("p.yaml", WithGuarantee(60));
  EXPECT_TRUE(WaitForHashOf(WithGuarantee(60)).ok);
}

TEST_F(ReloaderTest, AChangedKeyFileIsTakenInThoughThePolicyFileIsTheSame) {
  const std::string text = WithGuarantee(50) + "tenants: {default: {api_key_sha256_file: keys/a}}\n";
  folder_.Write("keys/a", "ci " + std::string(64, 'a') + "\n");
  folder_.Write("p.yaml", text);
  Start("p.yaml", true);
  folder_.Replace("keys/a", "ci " + std::string(64, 'b') + "\n");
  const ReloadReport report = WaitForHashOf(text);
  EXPECT_TRUE(report.ok);
  EXPECT_THAT(report.changes,
              ElementsAre(Change{"tenants.default.api_key_sha256", "[ci aaaaaaaa]", "[ci bbbbbbbb]", Effect::kLive}));
}

TEST_F(ReloaderTest, AKeyFileThatIsMissingIsLookedForAgain) {
  folder_.Write("p.yaml", WithGuarantee(50));
  Start("p.yaml", true);
  const std::string text = WithGuarantee(60) + "tenants: {default: {api_key_sha256_file: a.keys}}\n";
  folder_.Replace("p.yaml", text);
  EXPECT_FALSE(WaitForHashOf(text).ok);
  folder_.Replace("a.keys", "ci " + std::string(64, 'a') + "\n");
  EXPECT_TRUE(WaitForHashOf(text).ok);
}

TEST_F(ReloaderTest, WhatChangedBeforeTheWatchBeganIsTakenIn) {
  folder_.Write("p.yaml", WithGuarantee(50));
  Start("p.yaml", false);
  folder_.Write("p.yaml", WithGuarantee(60));
  ASSERT_TRUE(reloader_->Start(true).ok());
  EXPECT_TRUE(WaitForHashOf(WithGuarantee(60)).ok);
}

TEST_F(ReloaderTest, ReloadsFromManyThreadsTakeTurns) {
  folder_.Write("p.yaml", WithGuarantee(50));
  Start("p.yaml", true);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      for (int i = 0; i < 20; ++i) {
        if (t == 0) folder_.Replace("p.yaml", WithGuarantee(10 + i));
        if (t == 1) reloader_->RequestReload();
        if (t > 1) reloader_->Reload({.dry_run = t == 3, .expected_sha256 = ""});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const ReloadReport last = reloader_->Reload({});
  EXPECT_TRUE(last.ok);
  EXPECT_EQ(last.sha256, Sha256Hex(WithGuarantee(29)));
  EXPECT_EQ(LastInForce(), 29);
}

TEST(FoldersBehind, AreTheFilesOwnAndThoseOfTheLinksOnTheWay) {
  const test::TempFolder folder;
  folder.Write("real/..1/p.yaml", "");
  folder.Link("real/..data", "..1");
  folder.Link("real/p.yaml", "..data/p.yaml");
  folder.Link("link", "real");
  EXPECT_THAT(FoldersBehind(folder / "link/p.yaml"),
              UnorderedElementsAre(folder.path(), folder / "real", folder / "real/..1"));
  EXPECT_THAT(FoldersBehind(folder / "absent/too/p.yaml"), UnorderedElementsAre(folder.path()));
  folder.Link("loop", "loop");
  EXPECT_LE(FoldersBehind(folder / "loop").size(), 1u);
}

}  // namespace
}  // namespace berth
