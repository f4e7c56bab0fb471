#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <pthread.h>

#include <atomic>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace berth {
namespace {

// More threads than most machines have cores: waiting must then sleep, not spin the others out.
constexpr int kThreadCounts[] = {1, 2, 3, 4, 9};

TEST(ThreadPool, RunsEveryIndexExactlyOnceAndTheFirstOnTheCaller) {
  for (const int threads : kThreadCounts) {
    ThreadPool pool(threads, "test");
    EXPECT_EQ(pool.num_threads(), threads);
    std::vector<int> calls(static_cast<std::size_t>(threads), 0);
    std::thread::id first;
    pool.Run([&](int index) {
      ++calls[static_cast<std::size_t>(index)];
      if (index == 0) first = std::this_thread::get_id();
    });
    EXPECT_EQ(calls, std::vector<int>(static_cast<std::size_t>(threads), 1));
    EXPECT_EQ(first, std::this_thread::get_id());
  }
}

TEST(ThreadPool, WhatTasksWriteIsVisibleToTheCallerAndToTheNextRun) {
  ThreadPool pool(3, "test");
  std::vector<std::int64_t> values(3, 0);  // plain memory: a missing happens-before edge is a data race
  for (int round = 1; round <= 500; ++round) {
    pool.Run([&](int index) { values[static_cast<std::size_t>(index)] += 1; });
    EXPECT_EQ(std::accumulate(values.begin(), values.end(), std::int64_t{0}), 3LL * round);
  }
}

TEST(ThreadPool, NoThreadPassesABarrierBeforeAllHaveArrived) {
  for (const int threads : kThreadCounts) {
    ThreadPool pool(threads, "test");
    std::vector<int> stage(static_cast<std::size_t>(threads), 0);
    std::atomic<int> violations{0};
    pool.Run([&](int index) {
      for (int phase = 1; phase <= 300; ++phase) {
        stage[static_cast<std::size_t>(index)] = phase;
        pool.Barrier();
        for (const int other : stage) {
          if (other != phase) violations.fetch_add(1);
        }
        pool.Barrier();  // nobody writes the next phase while others still read
      }
    });
    EXPECT_EQ(violations.load(), 0) << threads << " threads";
  }
}

TEST(ThreadPool, SleepingWorkersWakeForALaterRun) {
  ThreadPool pool(2, "test");
  std::atomic<int> done{0};
  for (int round = 0; round < 3; ++round) {
    // Long enough for the worker to have given up spinning: the caller works alone before it needs the pool again.
    volatile double x = 1.0;
    for (int i = 0; i < 2'000'000; ++i) x = x * 1.0000001;
    pool.Run([&](int) { done.fetch_add(1); });
  }
  EXPECT_EQ(done.load(), 6);
}

TEST(ThreadPool, NamesItsThreads) {
  ThreadPool pool(2, "berth-test");
  std::string name;
  pool.Run([&](int index) {
    if (index != 1) return;
    char buffer[16] = {};
    pthread_getname_np(pthread_self(), buffer, sizeof buffer);
    name = buffer;
  });
  EXPECT_EQ(name, "berth-test-1");
}

}  // namespace
}  // namespace berth
