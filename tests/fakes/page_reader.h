// A page of /metrics as a table from series to value.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <sstream>
#include <string>

namespace berth::test {

// "name{label="value",...}", as the page writes it, without the label model_name that all of Berth's have.
using Page = std::map<std::string, double>;

inline Page ReadPage(const std::string& text) {
  Page page;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    const std::size_t space = line.rfind(' ');
    std::string series = line.substr(0, space);
    const std::string model = "model_name=\"smollm2\"";
    if (const std::size_t at = series.find(model); at != std::string::npos) {
      series.erase(at, model.size() + (series[at + model.size()] == ',' ? 1 : 0));
    }
    if (series.ends_with("{}")) series.resize(series.size() - 2);
    EXPECT_TRUE(page.emplace(series, std::strtod(line.c_str() + space + 1, nullptr)).second) << "twice: " << series;
  }
  return page;
}

// -1 where there is no such series: nothing that is measured is negative.
inline double ValueOf(const Page& page, const std::string& series) {
  const auto found = page.find(series);
  return found == page.end() ? -1.0 : found->second;
}

}  // namespace berth::test
