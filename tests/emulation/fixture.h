// What every test on the emulation begins and ends with.
#pragma once

#include <gtest/gtest.h>

#include "emulation/fault.h"
#include "emulation/runtime.h"
#include "emulation/settings.h"

namespace berth::emulation {

// A fresh device; afterwards nothing may be left of it, and no fault that the test did not take.
class EmulationTest : public ::testing::Test {
 protected:
  EmulationTest() : before_(settings()) { (void)cudaDeviceReset(); }
  ~EmulationTest() override {
    EXPECT_FALSE(TakeFault().has_value()) << "a kernel ended with a fault";
    EXPECT_TRUE(AtFault() || CountLiveObjects() == LiveObjects{}) << "something was not given back";
    (void)cudaDeviceReset();
    settings() = before_;
  }

 private:
  Settings before_;
};

}  // namespace berth::emulation
