#include "config/diagnostics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace berth {
namespace {

using ::testing::ElementsAre;

TEST(Diagnostics, StandInTheOrderOfTheFileEachAtTheNearestKeyThatTheFileHas) {
  Diagnostics diagnostics("p.yaml");
  diagnostics.Locate("", {1, 1});
  diagnostics.Locate("classes", {3, 1});
  diagnostics.Locate("classes.batch", {4, 3});
  diagnostics.Locate("classes.batch.queue", {5, 5});
  diagnostics.Warning("classes.batch.queue.max_wait", "is short");
  diagnostics.Error("tenants.acme", "is odd");
  diagnostics.Error("classes.gold.queue", "is absent");
  EXPECT_THAT(diagnostics.Lines(),
              ElementsAre("p.yaml:1:1: error: tenants.acme: is odd", "p.yaml:3:1: error: classes.gold.queue: is absent",
                          "p.yaml:5:5: warning: classes.batch.queue.max_wait: is short"));
  EXPECT_EQ(diagnostics.Summary(), "2 errors, 1 warning");
  EXPECT_FALSE(diagnostics.ok());
}

TEST(Diagnostics, WithoutAFileNameTheKeyAlone) {
  Diagnostics diagnostics("");
  diagnostics.Warning("classes.batch", "is small");
  EXPECT_THAT(diagnostics.Lines(), ElementsAre("warning: classes.batch: is small"));
  EXPECT_TRUE(diagnostics.ok());
}

TEST(Diagnostics, AreBoundedAndCountWhatTheyLeaveOut) {
  Diagnostics diagnostics("p.yaml");
  for (int i = 0; i < 250; ++i) diagnostics.Error("", "again");
  EXPECT_EQ(diagnostics.errors(), 250);
  EXPECT_EQ(diagnostics.Lines().size(), Diagnostics::kMostKept + 1);
  EXPECT_EQ(diagnostics.Lines().back(), "p.yaml: 150 more left out");
}

TEST(Shown, IsShortAndOneLine) {
  EXPECT_EQ(Shown("a\nb\x7f"), "\"a?b?\"");
  EXPECT_EQ(Shown(std::string(39, 'a') + "\u00e9"), "\"" + std::string(39, 'a') + "...\"");
}

}  // namespace
}  // namespace berth
