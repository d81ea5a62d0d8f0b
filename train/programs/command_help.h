// The layout of --help: each flag with its value's name, and next to it what it means, with its bounds and its default
// in words. Only command_line.h uses this.
#pragma once

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

namespace ringtrain {

/// Marks what a check says about its bounds in the names that CLI11 concatenates.
inline constexpr char bounds_mark = '\x1f';

/// Returns text in lines of at most `columns`; lines after the first are indented. A line never begins with a flag that
/// the text mentions, so that a reader who looks for a flag finds it only at its own entry.
inline std::string wrapped_help(std::string_view text, std::size_t columns, std::size_t indent) {
  std::string lines;
  std::size_t used = 0;
  while (!text.empty()) {
    std::size_t end = 0;  // of a word, and of the flags that follow it
    do {
      end = std::min(text.find_first_of(" \n", end + 1), text.size());
    } while (text.substr(end).starts_with(" -"));
    if (used > 0 && used + 1 + end > columns - indent) {
      lines += "\n" + std::string(indent, ' ');
      used = 0;
    } else if (used > 0) {
      lines += ' ';
      ++used;
    }
    lines += text.substr(0, end);
    used += end;
    const bool ends_line = text.substr(end).starts_with('\n');
    text.remove_prefix(std::min(end + 1, text.size()));
    if (ends_line) {
      lines += "\n" + std::string(indent, ' ');
      used = 0;
    }
  }
  return lines;
}

class HelpFormatter : public CLI::Formatter {
 public:
  static constexpr std::size_t columns = 110, indent = 30;

  std::string make_description(const CLI::App* app) const override {
    return wrapped_help(app->get_description(), columns, 0) + "\n";
  }
  std::string make_footer(const CLI::App* app) const override {
    return wrapped_help(app->get_footer(), columns, 0) + "\n";
  }
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    const std::string type = option->get_type_size() == 0 ? "" : option->get_type_name();
    const std::size_t mark = std::min(type.find(std::string(":") + bounds_mark), type.size());
    std::string name = "  " + make_option_name(option, is_positional);
    if (mark > 0 && !is_positional) name += " " + type.substr(0, mark);
    std::string meaning = option->get_description();
    if (mark < type.size()) meaning += fmt::format(" ({})", type.substr(mark + 2));
    if (const std::string value = option->get_default_str(); !value.empty())
      meaning += fmt::format(" (default: {})", value);
    if (option->get_required()) meaning += " (required)";
    name += name.size() < indent ? std::string(indent - name.size(), ' ') : "\n" + std::string(indent, ' ');
    return name + wrapped_help(meaning, columns, indent) + "\n";
  }
};

}  // namespace ringtrain
