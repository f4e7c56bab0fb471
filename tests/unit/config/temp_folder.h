// A folder of a test's own, gone when the test is.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

namespace berth::test {

class TempFolder {
 public:
  TempFolder() {
    std::string path = (std::filesystem::path(::testing::TempDir()) / "berth-XXXXXX").string();
    EXPECT_NE(::mkdtemp(path.data()), nullptr);
    path_ = path;
  }
  ~TempFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  std::string path() const { return path_.string(); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

  // In place, as an editor that truncates does.
  std::string Write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary | std::ios::trunc) << text;
    return *this / name;
  }
  // By a new file that takes the name over, as most editors do.
  void Replace(const std::string& name, const std::string& text) const {
    Write(name + ".new", text);
    std::filesystem::rename(path_ / (name + ".new"), path_ / name);
  }
  // A link that takes the name over, as Kubernetes swaps `..data`.
  void Link(const std::string& name, const std::string& target) const {
    std::filesystem::create_symlink(target, path_ / (name + ".new"));
    std::filesystem::rename(path_ / (name + ".new"), path_ / name);
  }

 private:
  std::filesystem::path path_;
};

}  // namespace berth::test
