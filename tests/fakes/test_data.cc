#include "fakes/test_data.h"

#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

namespace berth::test {
namespace {

std::string IfExists(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::exists(path, error) ? path.string() : std::string();
}

}  // namespace

std::string DataFile(const std::string& relative) { return std::string(BERTH_TEST_DATA_DIR) + "/" + relative; }

std::string SharedFile(const std::string& relative) {
  return IfExists(std::filesystem::path(BERTH_SHARED_DIR) / relative);
}

std::string DefaultModelFile() {
  namespace fs = std::filesystem;
  fs::path folder = BERTH_MODEL_DIR;
  if (folder.empty()) {
    const char* cache = std::getenv("XDG_CACHE_HOME");
    const char* home = std::getenv("HOME");
    if (cache != nullptr && *cache != '\0') {
      folder = fs::path(cache) / "berth" / "models";
    } else if (home != nullptr) {
      folder = fs::path(home) / ".cache" / "berth" / "models";
    }
  }
  return IfExists(folder / "SmolLM2-135M-Instruct.Q4_1.gguf");
}

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    std::cerr << "cannot read " << path << '\n';
    std::abort();
  }
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace berth::test
