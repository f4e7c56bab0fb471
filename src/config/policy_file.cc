#include "config/policy_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <sstream>
#include <unordered_map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/sha256.h"
#include "config/key_table.h"
#include "config/read_value.h"
#include "config/settings_check.h"
#include "config/suggestions.h"
#include "config/tls_files.h"
#include "config/yaml_tree.h"

namespace berth {
namespace {

constexpr std::string_view kShares = "scheduler.prefill_min_share";

// Walks the tree along the table of keys.
class Decoder {
 public:
  Decoder(ServerConfig* config, Diagnostics* diagnostics) : config_(config), diagnostics_(diagnostics) {}

  void Run(const YamlNode& root) {
    Section(root, "", "", {.config = config_});
    if (root.kind == YamlNode::Kind::kMap && !diagnostics_->Given("version")) {
      diagnostics_->Error("", "version is missing; the file begins with 'version: 1'");
    }
    // Only now are the classes known.
    if (shares_ != nullptr) ReadShares();
  }

 private:
  static std::string Join(std::string_view path, std::string_view name) {
    return path.empty() ? std::string(name) : absl::StrCat(std::string(path), ".", std::string(name));
  }

  // Calls `entry(name, path, node)` for each key of the section, once.
  template <typename Entry>
  void ForEachKey(const YamlNode& node, const std::string& path, const Entry& entry) {
    if (node.kind == YamlNode::Kind::kNull) return;
    if (node.kind != YamlNode::Kind::kMap) {
      return diagnostics_->Error(path, absl::StrCat("is ", KindName(node.kind), "; a map of keys is wanted"));
    }
    std::unordered_map<std::string_view, int> first_lines;
    for (std::size_t i = 0; i < node.keys.size(); ++i) {
      const YamlNode& key = node.keys[i];
      const auto [first, is_new] = first_lines.emplace(key.text, key.location.line);
      if (!is_new) {
        diagnostics_->ErrorAt(
            key.location, path,
            absl::StrCat(Shown(key.text), " is there twice, first in line ", first->second, "; keep one"));
        continue;
      }
      entry(key, Join(path, key.text), node.children[i]);
    }
  }

  void Section(const YamlNode& node, const std::string& pattern, const std::string& path, const Scope& scope) {
    ForEachKey(node, path, [&](const YamlNode& key, const std::string& key_path, const YamlNode& value) {
      Entry(key, value, Join(pattern, key.text), key_path, scope);
    });
  }

  void Entry(const YamlNode& key_node, const YamlNode& value, const std::string& pattern, const std::string& path,
             const Scope& scope) {
    const Key* const key = FindKey(pattern);
    const bool known = key != nullptr || IsSection(pattern) || pattern == "version";
    if (!known || key_node.text.find_first_of(".*") != std::string::npos) return Unknown(key_node, pattern, path);
    diagnostics_->Locate(path, key_node.location);
    if (key != nullptr) {
      ReadValue(key->rule, key->field(scope), value, path, diagnostics_);
    } else if (pattern == "version") {
      Version(value);
    } else if (pattern == "classes") {
      config_->classes.clear();
      Named(value, path, TextKind::kClass, kMaxClasses, &config_->classes, &Scope::service_class);
    } else if (pattern == "tenants") {
      config_->tenants.clear();
      Named(value, path, TextKind::kTenant, kMaxTenants, &config_->tenants, &Scope::tenant);
    } else if (pattern == kShares) {
      shares_ = &value;
    } else {
      Section(value, pattern, path, scope);
    }
  }

  void Unknown(const YamlNode& key_node, std::string_view pattern, std::string_view path) {
    const auto parent = [](std::string_view whole, std::size_t leaf) {
      return whole.substr(0, whole.size() - std::min(whole.size(), leaf + 1));
    };
    if (const std::string_view why = UnservedMessage(path); !why.empty()) {
      return diagnostics_->ErrorAt(key_node.location, std::string(path), std::string(why));
    }
    diagnostics_->ErrorAt(key_node.location, std::string(parent(path, key_node.text.size())),
                          absl::StrCat("unknown key ", Shown(key_node.text),
                                       KeyHint(parent(pattern, key_node.text.size()), key_node.text)));
  }

  void Version(const YamlNode& value) {
    if (value.kind != YamlNode::Kind::kScalar || value.quoted || value.text != "1") {
      diagnostics_->Error("version",
                          absl::StrCat(value.kind == YamlNode::Kind::kScalar ? Shown(value.text) : KindName(value.kind),
                                       " is not a version this program reads; write 1"));
    }
  }

  template <typename Settings>
  void Named(const YamlNode& node, const std::string& section, TextKind kind, std::size_t most,
             std::vector<Settings>* all, Settings* Scope::*member) {
    ForEachKey(node, section, [&](const YamlNode& key, const std::string& path, const YamlNode& value) {
      if (const std::string_view fault = TextFault(kind, key.text); !fault.empty()) {
        return diagnostics_->ErrorAt(key.location, section, absl::StrCat(Shown(key.text), " ", std::string(fault)));
      }
      if (all->size() == most) {
        return diagnostics_->ErrorAt(key.location, section,
                                     absl::StrCat("more than ", most, " of them; at most so many"));
      }
      diagnostics_->Locate(path, key.location);
      Settings& settings = all->emplace_back();
      settings.name = key.text;
      Scope scope{.config = config_};
      scope.*member = &settings;
      Section(value, section + ".*", path, scope);
    });
  }

  void ReadShares() {
    for (ClassSettings& c : config_->classes) c.prefill_min_share_millionths = 0;
    const Key& key = *FindKey("scheduler.prefill_min_share.*");
    ForEachKey(*shares_, std::string(kShares),
               [&](const YamlNode& name, const std::string& path, const YamlNode& value) {
                 const auto found = std::find_if(config_->classes.begin(), config_->classes.end(),
                                                 [&](const ClassSettings& c) { return c.name == name.text; });
                 if (found == config_->classes.end()) {
                   return diagnostics_->ErrorAt(name.location, std::string(kShares), UnknownClass(*config_, name.text));
                 }
                 diagnostics_->Locate(path, name.location);
                 ReadValue(key.rule, key.field({.service_class = &*found}), value, path, diagnostics_);
               });
  }

  ServerConfig* const config_;
  Diagnostics* const diagnostics_;
  const YamlNode* shares_ = nullptr;
};

// The file's lines, "ID SHA256 [admin]"; blank ones and comments are skipped.
void ReadKeyLines(const std::string& file, std::string_view text, const std::string& at, TenantSettings* tenant,
                  Diagnostics* diagnostics) {
  std::istringstream lines{std::string(text)};
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::istringstream words(line.substr(0, line.find('#')));
    ApiKeySettings key;
    std::string role;
    std::string rest;
    if (!(words >> key.id)) continue;
    words >> key.sha256 >> role >> rest;
    key.admin = role == "admin";
    const bool good = TextFault(TextKind::kKeyId, key.id).empty() && TextFault(TextKind::kSha256, key.sha256).empty() &&
                      (role.empty() || key.admin) && rest.empty();
    if (!good) {
      diagnostics->Error(at, absl::StrCat(file, ", line ", number,
                                          ": write ID SHA256 or ID SHA256 admin, the hash in "
                                          "64 lower-case hexadecimal digits"));
      continue;
    }
    tenant->api_keys.push_back(std::move(key));
  }
}

void ReadKeyFiles(Severity absent, PolicyFile* file, Diagnostics* diagnostics) {
  for (TenantSettings& tenant : file->config.tenants) {
    if (tenant.api_key_file.empty()) continue;
    const std::string key = absl::StrCat("tenants.", tenant.name, ".api_key_sha256_file");
    const absl::StatusOr<std::string> text = ReadConfigFile(tenant.api_key_file);
    file->files[tenant.api_key_file] = DigestOf(text);
    if (!text.ok()) {
      diagnostics->Add(absent, key,
                       absl::StrCat("cannot read ", tenant.api_key_file, ": ", std::string(text.status().message())));
      continue;
    }
    ReadKeyLines(tenant.api_key_file, *text, key, &tenant, diagnostics);
  }
}

void CountPathsFrom(const std::filesystem::path& folder, ServerConfig* config) {
  const auto anchor = [&](std::string* path) {
    if (!path->empty()) *path = (folder / *path).string();  // an absolute path stays as it is
  };
  anchor(&config->model.path);
  anchor(&config->server.tls.certificate);
  anchor(&config->server.tls.key);
  anchor(&config->server.tls.client_ca);
  for (TenantSettings& tenant : config->tenants) anchor(&tenant.api_key_file);
}

void AddDefaultTenant(ServerConfig* config) {
  const bool there = std::any_of(config->tenants.begin(), config->tenants.end(),
                                 [](const TenantSettings& t) { return t.name == kDefaultTenant; });
  if (!there) config->tenants.push_back(DefaultTenants().front());
}

ServerConfig Decode(std::string_view text, Diagnostics* diagnostics) {
  ServerConfig config;
  diagnostics->Locate("", {1, 1});
  const std::optional<YamlNode> root = ParseYaml(text, diagnostics);
  if (!root) return config;
  Decoder(&config, diagnostics).Run(*root);
  AddDefaultTenant(&config);
  return config;
}

}  // namespace

ServerConfig ParsePolicy(std::string_view text, Diagnostics* diagnostics) {
  ServerConfig config = Decode(text, diagnostics);
  if (diagnostics->ok()) CheckSettings(config, diagnostics);
  return config;
}

PolicyFile ReadPolicyFile(const std::string& path, Severity absent_file, Diagnostics* diagnostics) {
  PolicyFile file;
  const absl::StatusOr<std::string> text = ReadConfigFile(path);
  file.files[path] = DigestOf(text);
  if (!text.ok()) {
    diagnostics->Error("", std::string(text.status().message()));
    return file;
  }
  return ReadPolicyText(*text, path, absent_file, diagnostics);
}

PolicyFile ReadPolicyText(std::string_view text, const std::string& path, Severity absent_file,
                          Diagnostics* diagnostics) {
  PolicyFile file;
  file.sha256 = Sha256Hex(text);
  file.files[path] = file.sha256;
  file.config = Decode(text, diagnostics);
  CountPathsFrom(std::filesystem::path(path).parent_path(), &file.config);
  ReadKeyFiles(absent_file, &file, diagnostics);
  ReadTlsFiles(absent_file, &file, diagnostics);
  if (diagnostics->ok()) CheckSettings(file.config, diagnostics);
  return file;
}

std::string DigestOf(const absl::StatusOr<std::string>& content) {
  return content.ok() ? Sha256Hex(*content) : std::string(content.status().message());
}

absl::StatusOr<std::string> ReadConfigFile(const std::string& path) {
  // Not blocking: opening a FIFO that nobody writes would wait for ever.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return absl::NotFoundError(std::strerror(errno));
  struct stat info {};
  absl::Status fault;
  std::string text;
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    fault = absl::InvalidArgumentError("it is no regular file");
  }
  std::array<char, 1 << 16> chunk;
  while (fault.ok()) {
    const ssize_t got = ::read(fd, chunk.data(), chunk.size());
    if (got == 0) break;
    if (got < 0 && errno != EINTR) fault = absl::NotFoundError(std::strerror(errno));
    if (got > 0) text.append(chunk.data(), static_cast<std::size_t>(got));
    if (text.size() > kMaxPolicyBytes) {
      fault = absl::InvalidArgumentError(absl::StrCat("the file is larger than ", kMaxPolicyBytes, " bytes"));
    }
  }
  ::close(fd);
  if (!fault.ok()) return fault;
  return text;
}

}  // namespace berth
