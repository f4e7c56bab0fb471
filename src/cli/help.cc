#include "cli/help.h"

#include <sstream>

namespace berth::cli {
namespace {

constexpr std::size_t kNameColumns = 30;
constexpr std::size_t kLineColumns = 100;

}  // namespace

HelpFormatter::HelpFormatter() { column_width(kNameColumns); }

std::string HelpFormatter::make_usage(const CLI::App* app, std::string name) const {
  return CLI::Formatter::make_usage(app, std::move(name)) + "\n";
}

std::string HelpFormatter::make_group(std::string group, bool is_positional,
                                      std::vector<const CLI::Option*> opts) const {
  std::string text = group + ":\n";
  for (const CLI::Option* option : opts) text += make_option(option, is_positional);
  // CLI11 puts a blank line between groups of options, but none after the positionals.
  return is_positional ? text + "\n" : text;
}

std::string HelpFormatter::make_option(const CLI::Option* opt, bool is_positional) const {
  std::string text = "  " + make_option_name(opt, is_positional) + make_option_opts(opt);
  std::size_t column = text.size();
  std::istringstream words(make_option_desc(opt));
  const auto new_line = [&] {
    text += "\n" + std::string(kNameColumns, ' ');
    column = kNameColumns;
  };
  if (column + 2 > kNameColumns) {
    new_line();
  } else {
    text.append(kNameColumns - column, ' ');
    column = kNameColumns;
  }
  for (std::string word; words >> word;) {
    if (column > kNameColumns && column + 1 + word.size() > kLineColumns) new_line();
    if (column > kNameColumns) {
      text += ' ';
      ++column;
    }
    text += word;
    column += word.size();
  }
  return text + "\n";
}

}  // namespace berth::cli
