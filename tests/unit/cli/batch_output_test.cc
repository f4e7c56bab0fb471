#include "cli/batch_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "fakes/test_data.h"

namespace berth::cli {
namespace {

using ::testing::HasSubstr;
using Found = BatchOutput::Found;

class BatchOutputTest : public ::testing::Test {
 protected:
  BatchOutputTest() : path_(::testing::TempDir() + "/batch_output_test." + std::to_string(getpid()) + ".jsonl") {
    std::filesystem::remove(path_);
  }
  ~BatchOutputTest() override { std::filesystem::remove(path_); }

  void Write(const std::string& text) const { std::ofstream(path_, std::ios::binary) << text; }
  std::string Text() const { return test::ReadFile(path_); }
  std::unique_ptr<BatchOutput> Open(bool overwrite = false) const {
    auto output = BatchOutput::Open(path_, overwrite);
    EXPECT_TRUE(output.ok()) << output.status();
    return *std::move(output);
  }
  std::string Fault() const { return std::string(BatchOutput::Open(path_, false).status().message()); }

  const std::string path_;
};

constexpr const char* kAnswer0 = "{\"index\":0,\"request_hash\":\"aa\"}\n";
constexpr const char* kAnswer2 = "{\"index\":2,\"request_hash\":\"cc\"}\n";
constexpr const char* kError1 = "{\"index\":1,\"error\":{\"reason\":\"X\"}}\n";

TEST_F(BatchOutputTest, ANewFileTakesLines) {
  const auto output = Open();
  EXPECT_EQ(output->answers(), 0);
  EXPECT_EQ(output->last_index(), -1);
  ASSERT_TRUE(output->DropUnanswered().ok());
  EXPECT_TRUE(output->Append({{"index", 0}, {"request_hash", "aa"}}).ok());
  EXPECT_TRUE(output->Sync().ok());
  EXPECT_EQ(Text(), kAnswer0);
}

TEST_F(BatchOutputTest, WhatAnEarlierRunAnsweredIsFound) {
  Write(std::string(kAnswer2) + kAnswer0);
  const auto output = Open();
  EXPECT_EQ(output->answers(), 2);
  EXPECT_EQ(output->last_index(), 2);
  EXPECT_EQ(output->Find(0, "aa"), Found::kAnswer);
  EXPECT_EQ(output->Find(0, "bb"), Found::kOtherAnswer);
  EXPECT_EQ(output->Find(1, "aa"), Found::kNothing);
}

TEST_F(BatchOutputTest, ATornLineAndErrorsAreDroppedAndTheRestIsKeptAsItIs) {
  for (const char* torn : {"", "{", "{\"ind", "{\"index\":7,\"request_hash\":\"aa\"}"}) {
    Write(std::string(kAnswer0) + kError1 + kAnswer2 + torn);
    const auto output = Open();
    EXPECT_EQ(Text(), std::string(kAnswer0) + kError1 + kAnswer2 + torn) << "nothing is lost by looking";
    ASSERT_TRUE(output->DropUnanswered().ok());
    EXPECT_EQ(Text(), std::string(kAnswer0) + kAnswer2);
    EXPECT_TRUE(output->Append({{"index", 1}, {"request_hash", "bb"}}).ok());
    EXPECT_EQ(Text(), std::string(kAnswer0) + kAnswer2 + "{\"index\":1,\"request_hash\":\"bb\"}\n");
    EXPECT_FALSE(std::filesystem::exists(path_ + ".tmp"));
  }
}

TEST_F(BatchOutputTest, ARewrittenFileKeepsItsModeAndALinkStaysOne) {
  Write(std::string(kAnswer0) + kError1);
  chmod(path_.c_str(), 0600);
  const std::string link = path_ + ".link";
  std::filesystem::remove(link);
  std::filesystem::create_symlink(path_, link);
  ASSERT_TRUE((*BatchOutput::Open(link, false))->DropUnanswered().ok());
  EXPECT_EQ(Text(), kAnswer0);
  struct stat info {};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777U, 0600U);
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  std::filesystem::remove(link);
}

TEST_F(BatchOutputTest, AFileThatHoldsSomethingElseIsLeftAlone) {
  for (const char* text : {"hello", "hello\n", "{}\n", "[1]\n", "{\"index\":-1,\"request_hash\":\"aa\"}\n",
                           "{\"index\":0}\n", "{\"index\":0,\"request_hash\":1}\n"}) {
    Write(text);
    EXPECT_THAT(Fault(), HasSubstr("line 1 is no answer of 'berth batch'")) << text;
    EXPECT_EQ(Text(), text);
  }
  Write(std::string(kAnswer0) + kAnswer0);
  EXPECT_THAT(Fault(), HasSubstr("answered before"));
  const auto output = Open(/*overwrite=*/true);
  EXPECT_EQ(output->answers(), 0);
  EXPECT_EQ(Text(), "");
}

TEST_F(BatchOutputTest, TwoRunsDoNotShareAFile) {
  Write(kError1);
  auto output = Open();
  EXPECT_THAT(Fault(), HasSubstr("another run"));
  ASSERT_TRUE(output->DropUnanswered().ok());
  EXPECT_THAT(Fault(), HasSubstr("another run"));
  output.reset();
  Open();
}

TEST_F(BatchOutputTest, AFullDeviceIsAnErrorAndStaysOne) {
  const auto output = BatchOutput::Open("/dev/full", false);
  ASSERT_TRUE(output.ok());
  ASSERT_TRUE((*output)->DropUnanswered().ok());
  EXPECT_THAT(std::string((*output)->Append({{"index", 0}}).message()), HasSubstr("/dev/full: No space left"));
  EXPECT_FALSE((*output)->Append({{"index", 1}}).ok());
  EXPECT_FALSE((*output)->closed());
}

TEST_F(BatchOutputTest, AMissingFolderIsNamed) {
  EXPECT_THAT(std::string(BatchOutput::Open("/absent/out.jsonl", false).status().message()),
              HasSubstr("/absent/out.jsonl: No such file"));
}

}  // namespace
}  // namespace berth::cli
