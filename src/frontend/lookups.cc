#include "frontend/lookups.h"

#include <utility>
#include <vector>

#include "frontend/encode.h"

namespace berth {

std::variant<v1::EstimateDemandResponse, Refusal> EstimateDemand(const FrontendParts& parts, const ServedModel& model,
                                                                 v1::EstimateDemandRequest&& request,
                                                                 const CallContext& context) {
  const std::string request_id = parts.codec->ResolveRequestId(request.request());
  std::variant<GenerateSpec, Refusal> decoded =
      parts.codec->Decode(std::move(*request.mutable_request()), request_id, context);
  if (auto* refused = std::get_if<Refusal>(&decoded)) return std::move(*refused);
  const GenerateSpec& spec = std::get<GenerateSpec>(decoded);

  v1::EstimateDemandResponse response;
  response.set_block_tokens(model.pool.block_tokens);
  response.set_pool_blocks(model.pool.num_blocks);
  if (const std::optional<Refusal> too_large = parts.codec->CheckPromptBytes(spec)) {
    EncodeRefusal(*too_large, response.mutable_refusal());
    return response;
  }
  auto prompt_tokens = static_cast<std::int64_t>(spec.prompt_ids.size());
  if (!spec.prompt_is_ids) {
    EncodeOptions options;
    options.parse_special = spec.parse_special_tokens;
    const absl::StatusOr<std::vector<TokenId>> ids = parts.tokenizer->Encode(spec.prompt_text, options);
    if (!ids.ok()) return EncodeFault(ids.status());
    prompt_tokens = static_cast<std::int64_t>(ids->size());
  }
  response.set_prompt_tokens(prompt_tokens);
  const std::variant<KvDemand, Refusal> estimate =
      parts.engine->EstimateDemand(spec.service_class, prompt_tokens, spec.sampling.n, spec.stopping);
  if (const auto* too_large = std::get_if<Refusal>(&estimate)) {
    EncodeRefusal(*too_large, response.mutable_refusal());
    return response;
  }
  const auto& demand = std::get<KvDemand>(estimate);
  const std::int64_t block_bytes =
      model.config.kv_shape().BytesPerToken(model.kv_dtype) * std::int64_t{model.pool.block_tokens};
  response.set_fits(true);
  response.set_worst_blocks(demand.worst_blocks);
  response.set_max_output_tokens(demand.max_output_tokens);
  response.set_kv_bytes(demand.worst_blocks * block_bytes);
  return response;
}

std::variant<v1::TokenizeResponse, Refusal> Tokenize(const FrontendParts& parts, const v1::TokenizeRequest& request) {
  if (std::optional<Refusal> refused = parts.codec->CheckModel(request.model())) return *std::move(refused);
  EncodeOptions options;
  options.parse_special = request.parse_special_tokens();
  options.add_bos = !request.has_add_bos() || request.add_bos();
  const absl::StatusOr<std::vector<TokenId>> ids = parts.tokenizer->Encode(request.text(), options);
  if (!ids.ok()) return EncodeFault(ids.status());
  v1::TokenizeResponse response;
  response.mutable_token_ids()->Add(ids->begin(), ids->end());
  if (request.return_pieces()) {
    for (const TokenId id : *ids) response.add_pieces(std::string(ShownPiece(*parts.tokenizer, id)));
  }
  return response;
}

std::variant<v1::DetokenizeResponse, Refusal> Detokenize(const FrontendParts& parts,
                                                         const v1::DetokenizeRequest& request) {
  if (std::optional<Refusal> refused = parts.codec->CheckModel(request.model())) return *std::move(refused);
  for (const TokenId id : request.token_ids()) {
    if (std::optional<Refusal> refused = parts.codec->CheckTokenId("token_ids", id)) return *std::move(refused);
  }
  v1::DetokenizeResponse response;
  response.set_text(
      parts.tokenizer->Decode({request.token_ids().data(), static_cast<std::size_t>(request.token_ids_size())}));
  return response;
}

std::variant<v1::GetModelInfoResponse, Refusal> GetModelInfo(const FrontendParts& parts, const FrontendOptions& options,
                                                             const v1::GetModelInfoRequest& request) {
  if (std::optional<Refusal> refused = parts.codec->CheckModel(request.model())) return *std::move(refused);
  const ServedModel& model = options.model;
  v1::GetModelInfoResponse response;
  response.set_name(model.name);
  response.set_architecture(model.config.architecture);
  response.set_model_title(model.config.name);
  response.set_vocab_size(parts.tokenizer->vocab_size());
  response.set_max_context_tokens(model.max_context_tokens);
  response.set_trained_context_tokens(model.config.context_tokens);
  response.set_layers(model.config.layers);
  response.set_hidden_size(model.config.hidden);
  response.set_heads(model.config.heads);
  response.set_kv_heads(model.config.kv_heads);
  response.set_head_dim(model.config.head_dim);
  response.set_block_tokens(model.pool.block_tokens);
  response.set_pool_blocks(model.pool.num_blocks);
  response.set_kv_bytes_per_token(model.config.kv_shape().BytesPerToken(model.kv_dtype));
  response.set_kv_dtype(KvDtypeName(model.kv_dtype));
  if (parts.tokenizer->bos() != kNoToken) response.set_bos_token_id(parts.tokenizer->bos());
  for (const TokenId id : parts.tokenizer->eos()) response.add_eos_token_ids(id);
  response.set_tokenizer(parts.tokenizer->description());
  const std::shared_ptr<const Policy> policy = parts.engine->policy();
  const ClassPolicy& default_class = policy->classes[static_cast<std::size_t>(policy->default_class)];
  response.set_default_output_tokens(static_cast<std::int32_t>(default_class.default_output_tokens));
  response.set_server_version(BERTH_VERSION);
  return response;
}

}  // namespace berth
