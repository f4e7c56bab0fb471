// Names for the quantities that cross module edges. Plain integers on purpose: they live in device arrays and in wire
// messages; what a number counts is said by the variable's name (`_tokens`, `_blocks`, `_bytes`).
#pragma once

#include <cstdint>

namespace berth {

// Index into the model's vocabulary.
using TokenId = std::int32_t;
// Index of a physical KV block in the pool.
using BlockId = std::int32_t;
// One sequence (one choice of one request) in the engine, unique for the life of the process.
using SequenceId = std::int64_t;
// One request, unique for the life of the process and rising in order of arrival.
using RequestKey = std::int64_t;
// Index of a service class in the policy; a removed class keeps its index while anything of it lives.
using ClassId = std::int32_t;
// Index of a tenant.
using TenantId = std::int32_t;

// No token: marks "sample here" in StepPlan and "absent" elsewhere.
inline constexpr TokenId kNoToken = -1;
inline constexpr BlockId kNoBlock = -1;
inline constexpr RequestKey kNoRequest = -1;

inline constexpr std::int64_t CeilDiv(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace berth
