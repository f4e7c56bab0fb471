#include "frontend/tokenizer_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <vector>

namespace berth {
namespace {

// Holds a pool's only thread until it is let go.
class Blocker {
 public:
  explicit Blocker(TokenizerPool* pool) {
    std::promise<void> started;
    EXPECT_TRUE(pool->PostTicketed([&started, done = done_.get_future().share()] {
      started.set_value();
      done.wait();
    }));
    started.get_future().wait();
  }
  void LetGo() { done_.set_value(); }

 private:
  std::promise<void> done_;
};

TEST(TokenizerPoolTest, TicketHoldersGoFirstAndOthersInOrder) {
  TokenizerPool pool(1, 8);
  Blocker blocker(&pool);
  std::vector<int> order;  // touched by the pool's one thread
  EXPECT_TRUE(pool.TryPost([&] { order.push_back(3); }));
  EXPECT_TRUE(pool.TryPost([&] { order.push_back(4); }));
  EXPECT_TRUE(pool.PostTicketed([&] { order.push_back(1); }));
  EXPECT_TRUE(pool.PostTicketed([&] { order.push_back(2); }));
  blocker.LetGo();
  pool.Stop();
  EXPECT_THAT(order, testing::ElementsAre(1, 2, 3, 4));
}

TEST(TokenizerPoolTest, UnticketedJobsAreBoundedAndTicketedOnesAreNot) {
  TokenizerPool pool(1, 2);
  Blocker blocker(&pool);
  EXPECT_TRUE(pool.TryPost([] {}));
  EXPECT_TRUE(pool.TryPost([] {}));
  EXPECT_FALSE(pool.TryPost([] {}));
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(pool.PostTicketed([] {}));
  blocker.LetGo();
}

TEST(TokenizerPoolTest, StopRunsWhatWasPostedAndTakesNoMore) {
  TokenizerPool pool(2, 1000);
  std::atomic<int> ran = 0;
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(pool.TryPost([&] { ++ran; }));
  pool.Stop();
  EXPECT_EQ(ran, 1000);
  EXPECT_FALSE(pool.TryPost([] {}));
  EXPECT_FALSE(pool.PostTicketed([] {}));
  pool.Stop();
}

}  // namespace
}  // namespace berth
