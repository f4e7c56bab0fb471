// What was measured, as a table and as JSON.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "case.h"
#include "device.h"
#include "worker.h"

namespace berth::bench {

class Report {
 public:
  explicit Report(const std::vector<Case>& cases);

  void PrintHeader() const;
  // Of the next case; prints its row. The ceilings are taken from their own cases.
  void Add(const Outcome& outcome);

  bool AnyFailed() const;
  std::string Json(const DeviceFacts& facts, const std::string& note) const;

 private:
  // The least time that the ceilings allow, in seconds, by what bounds it; zero where they are not known.
  struct Least {
    double seconds = 0;
    const char* bound = "";
  };
  Least LeastTime(const Cost& cost) const;

  const std::vector<Case>& cases_;
  std::vector<Outcome> outcomes_;
  int name_width_ = 0;
  double bytes_per_second_ = 0;
  double flops_per_second_ = 0;
};

}  // namespace berth::bench
