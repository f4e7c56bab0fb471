#include "cli/backend_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "status_message.h"

namespace berth::cli {
namespace {

using test::Message;

using ::testing::HasSubstr;

// 2 · 2 · 1 · 8 · 2 = 64 bytes a token in bf16.
constexpr KvShape kShape = {.layers = 2, .kv_heads = 1, .head_dim = 8};
constexpr std::int64_t kBlockBytes = 64 * 16;

absl::StatusOr<PoolPlan> Plan(const ServerConfig& config, std::int32_t context_tokens, std::int64_t free_bytes) {
  return PlanPool(config, context_tokens, HostPoolMemory(config, kShape, 0, free_bytes));
}

TEST(PlanPoolTest, AutoTakesHalfOfWhatIsFree) {
  const absl::StatusOr<PoolPlan> plan = Plan(ServerConfig(), 1 << 20, 10 * kBlockBytes);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->shape.num_blocks, 5);
  EXPECT_EQ(plan->shape.block_tokens, 16);
  EXPECT_EQ(plan->bytes, 5 * kBlockBytes);
}

TEST(PlanPoolTest, AutoTakesNoMoreThanItsFullContextsNeed) {
  const absl::StatusOr<PoolPlan> plan = Plan(ServerConfig(), 33, 1LL << 40);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->shape.num_blocks, 16 * 3);
}

TEST(PlanPoolTest, AGivenSizeIsNeverExceeded) {
  ServerConfig config;
  config.kv_cache.memory = Quantity{QuantityUnit::kBytes, 3 * kBlockBytes + kBlockBytes - 1};
  EXPECT_EQ(Plan(config, 16, 0)->shape.num_blocks, 3);
  config.compute.float32 = true;  // twice the bytes a token
  EXPECT_EQ(Plan(config, 16, 0)->shape.num_blocks, 1);
}

TEST(PlanPoolTest, TheHostsMemoryIsCountedInBlocksToo) {
  ServerConfig config;
  config.kv_cache.host_swap_bytes = 5 * kBlockBytes - 1;
  EXPECT_EQ(Plan(config, 16, 1LL << 30)->shape.host_blocks, 4);
  EXPECT_EQ(Plan(ServerConfig(), 16, 1LL << 30)->shape.host_blocks, 0);
}

TEST(PlanPoolTest, LessThanOneBlockIsRefusedWithTheRemedy) {
  ServerConfig config;
  config.kv_cache.memory = Quantity{QuantityUnit::kBytes, kBlockBytes - 1};
  EXPECT_THAT(Message(Plan(config, 16, 1LL << 30).status()), HasSubstr("--kv-memory"));
  EXPECT_EQ(Plan(ServerConfig(), 16, -5).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(PlanPoolTest, AShareIsOfWhatIsFreeAndSwapSpaceIsCountedInBlocks) {
  ServerConfig config;
  config.kv_cache.memory = PercentOf(50);
  config.kv_cache.host_swap_bytes = 3 * kBlockBytes + 1;
  const absl::StatusOr<PoolPlan> plan = Plan(config, 16, 2'000'000);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->shape.num_blocks, 1'000'000 / kBlockBytes);
  EXPECT_EQ(plan->shape.host_blocks, 3);
  EXPECT_EQ(Plan(config, 16, -5).status().code(), absl::StatusCode::kResourceExhausted);
}

CudaDevice Device(std::int64_t total_blocks, std::int64_t free_blocks) {
  CudaDevice device;
  device.total_bytes = total_blocks * kBlockBytes;
  device.free_bytes = free_blocks * kBlockBytes;
  return device;
}

// Weights of ten blocks, a workspace of five.
absl::StatusOr<PoolPlan> PlanOn(const CudaDevice& device, const ServerConfig& config) {
  const CudaMemoryPlan taken = {10 * kBlockBytes, 5 * kBlockBytes, kBlockBytes};
  return PlanPool(config, 16, DevicePoolMemory(config, device, taken));
}

TEST(DevicePoolTest, AutoIsNineTenthsOfTheDeviceLessWhatIsTaken) {
  EXPECT_EQ(PlanOn(Device(1000, 990), ServerConfig())->shape.num_blocks, 900 - 15);
  EXPECT_EQ(PlanOn(Device(1000, 500), ServerConfig())->shape.num_blocks, 500 - 15) << "others use the device too";
  EXPECT_EQ(PlanOn(Device(1000, 990), LocalConfig(3))->shape.num_blocks, 3) << "a command's own requests need no more";
}

TEST(DevicePoolTest, AShareIsOfTheWholeDeviceLessWhatIsTaken) {
  ServerConfig config;
  config.kv_cache.memory = PercentOf(50);
  EXPECT_EQ(PlanOn(Device(1000, 990), config)->shape.num_blocks, 500 - 15);
}

TEST(DevicePoolTest, MoreThanIsFreeIsRefusedWithTheRemedy) {
  ServerConfig config;
  config.kv_cache.memory = PercentOf(90);
  const absl::Status status = PlanOn(Device(1000, 500), config).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(status), HasSubstr("kv_cache.memory comes to 885.0 KiB, and 485.0 KiB are free"));
  EXPECT_EQ(PlanOn(Device(1000, 12), ServerConfig()).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(ChooseBackendTest, Float32IsTheCpusAlone) {
  ServerConfig config;
  config.compute.float32 = true;
  EXPECT_FALSE(ChooseBackend(config)->device.has_value());
  config.compute.backend = BackendChoice::kCuda;
  EXPECT_THAT(Message(ChooseBackend(config).status()), HasSubstr("compute.float32"));
}

TEST(ChooseBackendTest, WithoutADeviceTheCpuIsTakenUnlessCudaIsAskedFor) {
  if (HasCudaBackend()) GTEST_SKIP() << "this build has the CUDA backend";
  ServerConfig config;
  EXPECT_FALSE(ChooseBackend(config)->device.has_value());
  config.compute.backend = BackendChoice::kCuda;
  EXPECT_THAT(Message(ChooseBackend(config).status()), HasSubstr("-DBERTH_CUDA=ON"));
  config.compute.backend = BackendChoice::kAuto;
  config.compute.device = 1;
  EXPECT_FALSE(ChooseBackend(config).ok()) << "a device that was named is meant";
}

}  // namespace
}  // namespace berth::cli
