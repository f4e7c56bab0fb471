// Policy files on disk, and the files they name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>

#include "base/sha256.h"
#include "config/policy_file.h"
#include "temp_folder.h"

namespace berth {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

const std::string kHash(64, 'a');
const std::string kOtherHash(64, 'b');

PolicyFile Read(const std::string& path, std::vector<std::string>* lines, Severity absent = Severity::kError) {
  Diagnostics diagnostics(path);
  PolicyFile file = ReadPolicyFile(path, absent, &diagnostics);
  *lines = diagnostics.Lines();
  return file;
}

TEST(ReadPolicyFile, CountsPathsFromTheFilesFolderAndKnowsItsContent) {
  const test::TempFolder folder;
  const std::string text =
      "version: 1\nmodel: {path: models/m.gguf}\n"
      "server: {tls: {certificate: /nowhere/tls.crt, key: tls.key}}\n";
  const std::string path = folder.Write("conf/p.yaml", text);
  std::vector<std::string> lines;
  const PolicyFile file = Read(path, &lines, Severity::kWarning);
  EXPECT_THAT(lines, ElementsAre(HasSubstr("warning: server.tls.certificate: cannot read /nowhere/tls.crt"),
                                 HasSubstr("warning: server.tls.key: cannot read " + folder / "conf/tls.key")));
  EXPECT_EQ(file.config.model.path, folder / "conf/models/m.gguf");
  EXPECT_EQ(file.config.server.tls.certificate, "/nowhere/tls.crt");
  EXPECT_EQ(file.config.server.tls.key, folder / "conf/tls.key");
  EXPECT_EQ(file.config.server.tls.client_ca, "");
  EXPECT_EQ(file.sha256, Sha256Hex(text));
  EXPECT_THAT(file.files,
              UnorderedElementsAre(Pair(path, Sha256Hex(text)), Pair("/nowhere/tls.crt", "No such file or directory"),
                                   Pair(folder / "conf/tls.key", "No such file or directory")));
}

TEST(ReadPolicyFile, JudgesTheFilesOfTls) {
  const test::TempFolder folder;
  folder.Write("tls.crt", "nonsense");
  folder.Write("tls.key", "");
  const std::string path = folder.Write("p.yaml", "version: 1\nserver: {tls: {certificate: tls.crt, key: tls.key}}\n");
  std::vector<std::string> lines;
  const PolicyFile file = Read(path, &lines);
  EXPECT_THAT(
      lines, ElementsAre(
                 HasSubstr("error: server.tls.certificate: " + folder / "tls.crt" + ": it holds no certificate in PEM"),
                 HasSubstr("error: server.tls.key: cannot read " + folder / "tls.key" + ": the file is empty")));
  EXPECT_EQ(file.files.at(folder / "tls.crt"), Sha256Hex("nonsense"));
}

TEST(ReadPolicyFile, TakesKeysFromKeyFilesToo) {
  const test::TempFolder folder;
  const std::string keys =
      folder.Write("acme.keys", "# of acme\n\nci " + kHash + "\r\nroot  " + kOtherHash + " admin\n");
  const std::string path = folder.Write("p.yaml", "version: 1\ntenants: {acme: {api_key_sha256_file: acme.keys}}\n");
  std::vector<std::string> lines;
  const PolicyFile file = Read(path, &lines);
  EXPECT_THAT(lines, IsEmpty());
  ASSERT_EQ(file.config.tenants.size(), 2u);  // and default
  EXPECT_THAT(file.config.tenants[0].api_keys,
              ElementsAre(ApiKeySettings{"ci", kHash, false}, ApiKeySettings{"root", kOtherHash, true}));
  EXPECT_EQ(file.files.count(keys), 1u);
}

TEST(ReadPolicyFile, NeverShowsWhatStandsInAKeyFile) {
  const test::TempFolder folder;
  const std::string keys =
      folder.Write("acme.keys", "s3cret\nci s3cret\nci " + kHash + " boss\nci " + kHash + " admin x\n");
  const std::string path = folder.Write("p.yaml", "version: 1\ntenants: {acme: {api_key_sha256_file: acme.keys}}\n");
  std::vector<std::string> lines;
  Read(path, &lines);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0], path + ":2:18: error: tenants.acme.api_key_sha256_file: " + keys +
                          ", line 1: write ID SHA256 or ID SHA256 admin, the hash in 64 lower-case hexadecimal digits");
  for (const std::string& line : lines) EXPECT_EQ(line.find("s3cret"), std::string::npos) << line;
}

TEST(ReadPolicyFile, OneKeyInTwoFilesSpeaksForNobody) {
  const test::TempFolder folder;
  folder.Write("a.keys", "a " + kHash);
  folder.Write("b.keys", "b " + kHash);
  const std::string path = folder.Write(
      "p.yaml", "version: 1\ntenants: {a: {api_key_sha256_file: a.keys}, b: {api_key_sha256_file: b.keys}}\n");
  std::vector<std::string> lines;
  Read(path, &lines);
  EXPECT_THAT(lines,
              ElementsAre(path + ":2:45: error: tenants.b.api_key_sha256: the keys \"a\" and \"b\" have the same "
                                 "hash; make one of them anew"));
}

TEST(ReadPolicyFile, AnAbsentKeyFileIsAnErrorOrAWarningAsTheCallerNeeds) {
  const test::TempFolder folder;
  const std::string path = folder.Write("p.yaml", "version: 1\ntenants: {default: {api_key_sha256_file: no.keys}}\n");
  std::vector<std::string> lines;
  Read(path, &lines);
  const std::string rest =
      "tenants.default.api_key_sha256_file: cannot read " + (folder / "no.keys") + ": No such file or directory";
  EXPECT_THAT(lines, ElementsAre(path + ":2:21: error: " + rest));
  Read(path, &lines, Severity::kWarning);
  EXPECT_THAT(lines, ElementsAre(path + ":2:21: warning: " + rest));
}

TEST(ReadPolicyFile, WhatIsNoSmallRegularFileIsRefusedAndNeverWaitedFor) {
  const test::TempFolder folder;
  std::vector<std::string> lines;
  Read(folder / "absent.yaml", &lines);
  EXPECT_THAT(lines, ElementsAre((folder / "absent.yaml") + ": error: No such file or directory"));

  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  Read(folder / "pipe", &lines);
  EXPECT_THAT(lines, ElementsAre((folder / "pipe") + ": error: it is no regular file"));

  std::filesystem::create_directory(folder / "d");
  Read(folder / "d", &lines);
  EXPECT_THAT(lines, ElementsAre((folder / "d") + ": error: it is no regular file"));

  Read(folder.Write("large.yaml", std::string((1 << 20) + 1, '#')), &lines);
  EXPECT_THAT(lines, ElementsAre((folder / "large.yaml") + ": error: the file is larger than 1048576 bytes"));
}

}  // namespace
}  // namespace berth
