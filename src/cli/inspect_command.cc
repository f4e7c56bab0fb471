#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <utility>

#include "base/machine.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/runtime.h"
#include "config/size.h"

namespace berth::cli {
namespace {

struct InspectOptions {
  ServerConfig config;
  bool json = false;
};

struct TypeSum {
  std::int64_t tensors = 0;
  std::int64_t bytes = 0;
};

struct KvFacts {
  KvDtype dtype;
  std::int64_t bytes_per_token = 0;
  std::int64_t contexts_that_fit = 0;
};

struct ModelFacts {
  std::map<GgufTensorType, TypeSum> types;
  std::vector<KvFacts> kv;
  std::int64_t free_bytes = 0;  // beside the weights
  std::string tokenizer;
};

ModelFacts Collect(const Model& model, std::int32_t block_tokens) {
  ModelFacts facts;
  for (const GgufTensor& tensor : model.file->tensors()) {
    TypeSum& sum = facts.types[tensor.type];
    ++sum.tensors;
    sum.bytes += static_cast<std::int64_t>(tensor.data.size());
  }
  const absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::FromGguf(*model.file);
  facts.tokenizer = tokenizer.ok()
                        ? (*tokenizer)->description() + ", " + GroupDigits((*tokenizer)->vocab_size()) + " tokens"
                        : "not served: " + std::string(tokenizer.status().message());
  facts.free_bytes = std::max<std::int64_t>(0, AvailableMemoryBytes() - EstimateWeightBytes(model, false));
  const std::int64_t context_tokens = CeilDiv(model.config.context_tokens, block_tokens) * block_tokens;
  for (const KvDtype dtype : {KvDtype::kFloat32, KvDtype::kBf16, KvDtype::kInt8}) {
    const std::int64_t bytes = model.config.kv_shape().BytesPerToken(dtype);
    facts.kv.push_back({dtype, bytes, facts.free_bytes / (bytes * context_tokens)});
  }
  return facts;
}

Json ToJson(const Model& model, const ModelFacts& facts) {
  const ModelConfig& config = model.config;
  Json types = Json::object();
  for (const auto& [type, sum] : facts.types) {
    types[GgufTensorTypeName(type)] = {{"tensors", sum.tensors}, {"bytes", sum.bytes}};
  }
  Json kv = Json::object();
  for (const KvFacts& entry : facts.kv) {
    kv[KvDtypeName(entry.dtype)] = {{"bytes_per_token", entry.bytes_per_token},
                                    {"full_contexts_in_free_memory", entry.contexts_that_fit}};
  }
  return {{"path", model.file->path()},
          {"file_bytes", model.file->file_bytes()},
          {"name", config.name},
          {"architecture", config.architecture},
          {"parameters", model.parameters()},
          {"context_tokens", config.context_tokens},
          {"layers", config.layers},
          {"hidden", config.hidden},
          {"heads", config.heads},
          {"kv_heads", config.kv_heads},
          {"head_dim", config.head_dim},
          {"ffn", config.ffn},
          {"vocab_size", config.vocab_size},
          {"tied_embeddings", config.tied_embeddings},
          {"tokenizer", facts.tokenizer},
          {"tensor_types", std::move(types)},
          {"free_memory_bytes", facts.free_bytes},
          {"kv", std::move(kv)}};
}

std::string ToText(const Model& model, const ModelFacts& facts) {
  const ModelConfig& config = model.config;
  FactTable table;
  table.Add("file", model.file->path() + " (" + FormatBytes(model.file->file_bytes()) + ")");
  if (!config.name.empty()) table.Add("name", OneLine(config.name));
  table.Add("architecture", config.architecture + ": " + std::to_string(config.layers) + " layers, hidden " +
                                std::to_string(config.hidden) + ", " + std::to_string(config.heads) + " heads, " +
                                std::to_string(config.kv_heads) + " KV heads of " + std::to_string(config.head_dim) +
                                ", FFN " + std::to_string(config.ffn));
  table.Add("parameters", GroupDigits(model.parameters()) + (config.tied_embeddings ? " (embeddings tied)" : ""));
  table.Add("context", GroupDigits(config.context_tokens) + " tokens");
  table.Add("tokenizer", facts.tokenizer);
  for (const auto& [type, sum] : facts.types) {
    table.Add(std::string("tensors ") + GgufTensorTypeName(type),
              std::to_string(sum.tensors) + ", " + FormatBytes(sum.bytes));
  }
  table.Add("free memory", FormatBytes(facts.free_bytes) + " beside the weights");
  for (const KvFacts& entry : facts.kv) {
    table.Add(std::string("KV ") + KvDtypeName(entry.dtype),
              GroupDigits(entry.bytes_per_token) + " bytes per token, free memory holds " +
                  GroupDigits(entry.contexts_that_fit) + " full contexts");
  }
  return table.Text();
}

Outcome Inspect(const InspectOptions& options, Output& out) {
  const absl::StatusOr<std::unique_ptr<Model>> model = OpenModel(options.config.model);
  if (!model.ok()) return FromStatus(model.status());
  const ModelFacts facts = Collect(**model, options.config.kv_cache.block_tokens);
  if (options.json) {
    out.WriteJson(ToJson(**model, facts));
  } else {
    out.Write(ToText(**model, facts));
  }
  return {};
}

}  // namespace

void AddInspectCommand(CLI::App* root, Invocation* invocation) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* app = root->add_subcommand("inspect", "What a model file holds and what its KV cache costs");
  AddText(app, "model,--model", &options->config.model.path, "PATH",
          "GGUF model file; default: the one that 'make model' fetches")
      ->group("Model");
  AddJson(app, &options->json, "one object");
  app->footer(
      "Free memory is what this process may still use, its container's limit included.\n\n"
      "Example:\n"
      "  berth inspect model.gguf");
  app->callback([=] { invocation->run = [=](Output& out) { return Inspect(*options, out); }; });
}

}  // namespace berth::cli
