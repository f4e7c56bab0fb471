#include "frontend/lookups.h"

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "frontend/encode.h"

namespace berth {
namespace {

// The engine's thread answers between two things it does, each of which takes milliseconds; one that is stuck in one
// must not hold up those who wait to be tokenized.
constexpr auto kPatience = std::chrono::milliseconds(250);

// What the engine thinks of the request; none where it does not say so in time.
std::optional<RequestOutlook> AskEngine(Engine* engine, const GenerateSpec& spec, const KvDemand& demand) {
  struct Answer {
    std::mutex mutex;
    std::condition_variable came;
    std::optional<RequestOutlook> outlook;  // guarded by mutex
  };
  auto answer = std::make_shared<Answer>();
  engine->Foresee(spec, demand, [answer](RequestOutlook outlook) {
    const std::lock_guard lock(answer->mutex);
    answer->outlook = std::move(outlook);
    answer->came.notify_one();
  });
  std::unique_lock lock(answer->mutex);
  answer->came.wait_for(lock, kPatience, [&] { return answer->outlook.has_value(); });
  return std::move(answer->outlook);
}

void EncodeOutlook(const RequestOutlook& outlook, v1::EstimateDemandResponse* response) {
  switch (outlook.kind) {
    case RequestOutlook::Kind::kStarts:
      response->set_outlook(v1::OUTLOOK_STARTS);
      break;
    case RequestOutlook::Kind::kQueues:
      response->set_outlook(v1::OUTLOOK_QUEUES);
      EncodeDuration(outlook.wait, response->mutable_predicted_wait());
      break;
    case RequestOutlook::Kind::kRefused:
      response->set_outlook(v1::OUTLOOK_REFUSED);
      if (outlook.refusal) EncodeRefusal(*outlook.refusal, response->mutable_refusal());
      break;
  }
}

void RefuseDemand(const Refusal& refusal, v1::EstimateDemandResponse* response) {
  response->set_outlook(v1::OUTLOOK_REFUSED);
  EncodeRefusal(refusal, response->mutable_refusal());
}

void EncodeClass(const ClassPolicy& in, std::int64_t max_context_tokens, std::int64_t pool_blocks,
                 v1::ClassLimits* out) {
  const std::int64_t max_sequence_tokens = std::min(in.max_sequence_tokens, max_context_tokens);
  const std::int64_t max_output_tokens = std::min(in.max_output_tokens, max_sequence_tokens - 1);
  out->set_name(in.name);
  out->set_max_sequence_tokens(max_sequence_tokens);
  out->set_max_output_tokens(max_output_tokens);
  out->set_default_output_tokens(std::min(in.default_output_tokens, max_output_tokens));
  out->set_guaranteed_blocks(in.kv_guarantee_blocks);
  out->set_ceiling_blocks(std::min(in.ceiling_blocks(), pool_blocks));
  out->set_queues(in.overload != Overload::kReject);
  out->set_max_queued_requests(in.max_queued_requests);
  EncodeDuration(in.max_wait, out->mutable_max_wait());
  out->set_preemptible(in.preemptible);
  if (in.default_timeout) EncodeDuration(*in.default_timeout, out->mutable_default_timeout());
}

bool MayUse(const TenantPolicy& tenant, ClassId c) {
  return !tenant.classes || std::find(tenant.classes->begin(), tenant.classes->end(), c) != tenant.classes->end();
}

}  // namespace

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
    RefuseDemand(*too_large, &response);
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
      parts.engine->EstimateDemand(spec.service_class, spec.tenant, prompt_tokens, spec.sampling.n, spec.stopping);
  if (const auto* too_large = std::get_if<Refusal>(&estimate)) {
    RefuseDemand(*too_large, &response);
    return response;
  }
  const auto& demand = std::get<KvDemand>(estimate);
  const std::int64_t block_bytes =
      model.config.kv_shape().BytesPerToken(model.kv_dtype) * std::int64_t{model.pool.block_tokens};
  response.set_fits(true);
  response.set_worst_blocks(demand.worst_blocks);
  response.set_max_output_tokens(demand.max_output_tokens);
  response.set_kv_bytes(demand.worst_blocks * block_bytes);
  if (const std::optional<RequestOutlook> outlook = AskEngine(parts.engine, spec, demand)) {
    EncodeOutlook(*outlook, &response);
  }
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
                                                             TenantId tenant, const v1::GetModelInfoRequest& request) {
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
  const TenantPolicy& caller = policy->tenants[static_cast<std::size_t>(tenant)];
  for (ClassId c = 0; c < std::ssize(policy->classes); ++c) {
    const ClassPolicy& service_class = policy->classes[static_cast<std::size_t>(c)];
    if (service_class.removed || !MayUse(caller, c)) continue;
    EncodeClass(service_class, model.max_context_tokens, model.pool.num_blocks, response.add_classes());
  }
  response.set_default_class(default_class.name);
  return response;
}

}  // namespace berth
