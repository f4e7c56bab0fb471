#include "cli/input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "status_message.h"

namespace berth::cli {
namespace {

using test::Message;

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::unique_ptr<std::FILE, int (*)(std::FILE*)> FileWith(std::string_view text) {
  std::FILE* file = std::tmpfile();
  std::fwrite(text.data(), 1, text.size(), file);
  std::rewind(file);
  return {file, &std::fclose};
}

TEST(TokenIdsTest, CommasAndBlanksSeparate) {
  EXPECT_THAT(*ParseTokenIds("1,2, 3\n4\t5"), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(*ParseTokenIds(" , "), IsEmpty());
  EXPECT_THAT(*ParseTokenIds("2147483647"), ElementsAre(2147483647));
}

TEST(TokenIdsTest, WhatIsNoIdIsQuoted) {
  for (const char* text : {"1,x", "-1", "1.5", "2147483648", "0x10", "1;2"}) {
    EXPECT_FALSE(ParseTokenIds(text).ok()) << text;
  }
  EXPECT_THAT(Message(ParseTokenIds("1,seven").status()), HasSubstr("\"seven\""));
}

TEST(TokenIdsTest, IdsOutsideTheVocabularyAreNamedWithItsSize) {
  EXPECT_TRUE(CheckTokenIds({0, 511}, 512).ok());
  const std::string message = Message(CheckTokenIds({0, 512}, 512));
  EXPECT_THAT(message, HasSubstr("token id 512"));
  EXPECT_THAT(message, HasSubstr("0 to 511"));
}

TEST(LineReaderTest, LinesComeNumberedWithoutTheirNewlines) {
  const auto file = FileWith(std::string_view("one\n\ntw\0o\nlast", 14));
  LineReader lines(file.get(), "it");
  EXPECT_EQ(**lines.Next(), "one");
  EXPECT_EQ(**lines.Next(), "");
  EXPECT_EQ(**lines.Next(), std::string_view("tw\0o", 4));
  EXPECT_EQ(lines.line_number(), 3);
  EXPECT_EQ(**lines.Next(), "last");
  EXPECT_FALSE(lines.Next()->has_value());
  EXPECT_EQ(lines.line_number(), 4);
}

TEST(LineReaderTest, ALineThatIsTooLongIsNamedAndTheNextCanBeHad) {
  const auto file = FileWith("four\nfives\nsixsix\nend");
  LineReader lines(file.get(), "it", 4);
  EXPECT_EQ(**lines.Next(), "four");
  for (const char* line : {"line 2", "line 3"}) {
    const absl::Status status = lines.Next().status();
    EXPECT_TRUE(absl::IsOutOfRange(status));
    EXPECT_THAT(Message(status), HasSubstr(line));
  }
  EXPECT_EQ(**lines.Next(), "end");
  EXPECT_EQ(lines.line_number(), 4);
  EXPECT_FALSE(lines.ended_with_newline());
  EXPECT_FALSE(lines.Next()->has_value());
}

TEST(JsonLineTest, MembersAreCheckedForTheirType) {
  const nlohmann::json object = *ParseJsonObject(R"({"text": "a", "ids": [1, 2], "parse_special": true})");
  EXPECT_EQ(*TextMember(object), "a");
  EXPECT_THAT(*IdsMember(object, "ids"), ElementsAre(1, 2));
  EXPECT_TRUE(*BoolMember(object, "parse_special", false));
  EXPECT_TRUE(*BoolMember(object, "absent", true));

  const nlohmann::json wrong = *ParseJsonObject(R"({"text": 1, "ids": [1, -2], "parse_special": "yes"})");
  EXPECT_FALSE(TextMember(wrong).ok());
  EXPECT_THAT(Message(IdsMember(wrong, "ids").status()), HasSubstr("element 1"));
  EXPECT_FALSE(BoolMember(wrong, "parse_special", false).ok());
}

TEST(JsonLineTest, WhatIsNoJsonObjectIsRefused) {
  for (const char* line : {"", "{", "[1]", "null", "\"a\"", "{\"text\": \"\xff\"}", "{} {}"}) {
    EXPECT_FALSE(ParseJsonObject(line).ok()) << line;
  }
}

TEST(JsonLineTest, AFaultIsToldInAShortLineHoweverLongTheInput) {
  const std::string open_string = "\"" + std::string(1 << 20, 'a');
  for (const std::string& line : {open_string, std::string("\xff\xfe: \x01"), std::string("{\"a\": nope: 1}")}) {
    const std::string message(ParseJsonObject(line).status().message());
    EXPECT_THAT(message, testing::StartsWith("it is not JSON: syntax error")) << message.substr(0, 200);
    EXPECT_LT(message.size(), 300U);
  }
}

TEST(JsonLineTest, DeepNestingIsRefusedWithoutOverflowingTheStack) {
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  EXPECT_FALSE(ParseJsonObject(deep).ok());
  const absl::StatusOr<nlohmann::json> object = ParseJsonObject("{\"ids\": [" + deep + "]}");
  ASSERT_TRUE(object.ok());
  EXPECT_THAT(Message(IdsMember(*object, "ids").status()), HasSubstr("element 0"));
}

TEST(TextFileTest, MissingFilesAndFoldersAreNamed) {
  EXPECT_THAT(Message(ReadTextFile("/absent/prompt.txt").status()), HasSubstr("/absent/prompt.txt"));
  EXPECT_THAT(Message(ReadTextFile(::testing::TempDir()).status()), HasSubstr("directory"));
}

}  // namespace
}  // namespace berth::cli
