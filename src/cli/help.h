// How --help looks: wrapped to a terminal's width, one blank line between groups.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace berth::cli {

class HelpFormatter final : public CLI::Formatter {
 public:
  HelpFormatter();

  std::string make_usage(const CLI::App* app, std::string name) const override;
  std::string make_group(std::string group, bool is_positional, std::vector<const CLI::Option*> opts) const override;
  std::string make_option(const CLI::Option* opt, bool is_positional) const override;
};

}  // namespace berth::cli
