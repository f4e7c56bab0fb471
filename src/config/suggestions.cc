#include "config/suggestions.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "config/key_table.h"

namespace berth {
namespace {

constexpr VllmFlag kVllmFlags[] = {
    {"served_model_name", "model.name", ""},
    {"max_model_len", "model.max_context_tokens", ""},
    {"block_size", "kv_cache.block_tokens", ""},
    {"kv_cache_dtype", "kv_cache.dtype", ""},
    {"gpu_memory_utilization", "kv_cache.memory", "written as a share, such as 90%"},
    {"kv_cache_memory_bytes", "kv_cache.memory", "written with a unit, such as 8GiB"},
    {"num_gpu_blocks_override", "kv_cache.memory", "given as memory, not as blocks"},
    {"swap_space", "kv_cache.host_swap", "written with a unit, such as 4GiB"},
    {"preemption_mode", "kv_cache.host_swap", "above 0, blocks are swapped where that is cheaper"},
    {"max_num_seqs", "scheduler.max_running_sequences", ""},
    {"max_num_batched_tokens", "scheduler.max_batched_tokens", ""},
    {"long_prefill_token_threshold", "scheduler.prefill_min_share", "a share of the step for each class"},
    {"scheduling_policy", "classes.<class>.priority", "priorities belong to classes"},
    {"max_num_queued_reqs", "server.max_queued_requests", "running ones are not counted"},
    {"max_num_queued_tokens", "server.max_queued_tokens", ""},
    {"host", "server.grpc", "one address, HOST:PORT"},
    {"port", "server.grpc", "one address, HOST:PORT"},
    {"uds", "server.grpc", "written as unix:PATH"},
    {"ssl_certfile", "server.tls.certificate", ""},
    {"ssl_keyfile", "server.tls.key", ""},
    {"ssl_ca_certs", "server.tls.client_ca", ""},
    {"api_key", "tenants.<tenant>.api_key_sha256", "its hash, not the key"},
    {"dtype", "compute.float32", "the model file decides, unless float32 is asked for"},
    {"quantization", "", "the model file decides"},
    {"enable_prefix_caching", "", "the prefix cache is always on"},
    {"enable_chunked_prefill", "", "prompts are always computed in chunks"},
    {"tensor_parallel_size", "", "a server uses one device"},
};

// Insertions, deletions, replacements and swaps of neighbours that turn one into the other.
std::size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(last.begin(), last.end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

// "--max-num-seqs" → "max_num_seqs"
std::string KeySpelling(std::string_view name) {
  while (name.starts_with('-')) name.remove_prefix(1);
  std::string spelling(name);
  for (char& c : spelling) {
    if (c == '-') c = '_';
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return spelling;
}

// "classes.*.priority" → "classes.<class>.priority"
std::string Spoken(std::string_view path) {
  return NamedPath(path, path.starts_with("tenants.") ? "<tenant>" : "<class>");
}

std::string_view Leaf(std::string_view path) { return path.substr(path.rfind('.') + 1); }

// Few letters differ, or one goes on where the other ends.
bool Close(std::string_view a, std::string_view b, std::size_t distance) {
  const std::size_t shorter = std::min(a.size(), b.size());
  return distance <= std::max<std::size_t>(1, shorter / 3) || (shorter >= 4 && (a.starts_with(b) || b.starts_with(a)));
}

// The names that may stand in a section.
std::vector<std::string_view> NamesIn(std::string_view pattern) {
  std::vector<std::string_view> names;
  if (pattern.empty()) names.push_back("version");
  for (const Key& key : PolicyKeys()) {
    std::string_view rest = key.path;
    if (!pattern.empty()) {
      if (!rest.starts_with(pattern) || rest.size() <= pattern.size() || rest[pattern.size()] != '.') continue;
      rest.remove_prefix(pattern.size() + 1);
    }
    rest = rest.substr(0, rest.find('.'));
    if (std::find(names.begin(), names.end(), rest) == names.end()) names.push_back(rest);
  }
  return names;
}

// The key or section that ends in this name, wherever it is.
std::string ElsewhereHint(std::string_view name) {
  for (const Key& key : PolicyKeys()) {
    for (std::string_view path = key.path; !path.empty();
         path = path.substr(0, path.rfind('.') == std::string_view::npos ? 0 : path.rfind('.'))) {
      if (Leaf(path) == name) return absl::StrCat("; it belongs at ", Spoken(path));
    }
  }
  return "";
}

}  // namespace

std::span<const VllmFlag> VllmFlags() { return kVllmFlags; }

std::string NearestHint(std::string_view name, std::span<const std::string_view> known) {
  constexpr std::size_t kLongestName = 128;
  constexpr std::size_t kMostListed = 30;
  std::string_view nearest;
  std::size_t least = std::string_view::npos;
  for (const std::string_view candidate : known) {
    if (name.size() > kLongestName) break;
    const std::size_t distance = EditDistance(name, candidate);
    if (distance < least) {
      least = distance;
      nearest = candidate;
    }
  }
  if (!nearest.empty() && Close(name, nearest, least)) {
    return absl::StrCat("; did you mean ", std::string(nearest), "?");
  }
  if (known.empty()) return "";
  std::string list;
  for (std::size_t i = 0; i < std::min(known.size(), kMostListed); ++i) {
    absl::StrAppend(&list, i == 0 ? "" : ", ", std::string(known[i]));
  }
  return absl::StrCat("; known are: ", list, known.size() > kMostListed ? ", ..." : "");
}

std::string KeyHint(std::string_view pattern, std::string_view name) {
  if (const std::size_t dot = name.rfind('.'); dot != std::string_view::npos && FindKey(name) != nullptr) {
    return absl::StrCat("; write ", std::string(name.substr(dot + 1)), " within ", std::string(name.substr(0, dot)));
  }
  const std::string spelling = KeySpelling(name);
  for (const VllmFlag& flag : kVllmFlags) {
    if (flag.name != spelling) continue;
    const std::string note = flag.note.empty() ? "" : absl::StrCat(" (", std::string(flag.note), ")");
    return flag.key.empty() ? absl::StrCat("; that is vLLM's, and needs no key here", note)
                            : absl::StrCat("; that is vLLM's name, did you mean ", std::string(flag.key), note, "?");
  }
  const std::vector<std::string_view> names = NamesIn(pattern);
  std::string near = NearestHint(spelling, names);
  if (near.find("did you mean") != std::string::npos) return near;
  const std::string elsewhere = ElsewhereHint(spelling);
  return elsewhere.empty() ? near : elsewhere;
}

}  // namespace berth
