// Command lines with CLI11, only for the mains: a mistake is an Error(usage) like every other, with one message. The
// checks of numbers' types and ranges are here, for all programs: CLI11 accepts nan and inf for any real number, and
// silently forces an integer that is too large or negative into its type's range.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "framework/error.h"
#include "framework/standard_streams.h"
#include "framework/text/nearest_name.h"
#include "framework/text/text_reader.h"
#include "framework/text/token_count.h"
#include "train/engine/computation.h"
#include "train/programs/command_help.h"
#include "train/programs/version.h"

namespace ringtrain {

/// Returns what is wrong with a command line: CLI11's message, or, for arguments that no flag takes, those arguments
/// and "; did you mean --NAME?" for the first that is nearly a flag.
inline std::string wrong_arguments(const CLI::App& app, const CLI::ParseError& error) {
  if (app.remaining().empty()) return error.what();
  std::string text = fmt::format("unknown argument: {}", fmt::join(app.remaining(), " "));
  std::vector<std::string> flags;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  }
  for (const std::string& given : app.remaining()) {
    if (!given.starts_with('-')) continue;
    const std::string nearest = nearest_name(given.substr(0, given.find('=')), flags);
    if (!nearest.empty()) return fmt::format("{}; did you mean {}?", text, nearest);
  }
  return text;
}

/// Throws Error(usage) for a flag whose value is empty, as that of a shell variable that was not set, or is another
/// flag of this program. A text may be both.
inline void refuse_missing_values(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_expected_min() == 0 || option->get_type_name() == "TEXT") continue;  // 0: --resume
    for (const std::string& value : option->results()) {
      if (value.empty()) fail(ExitCode::usage, "{} is empty; give it a value or leave it out", option->get_name());
      if (!value.starts_with("--") || app.get_option_no_throw(value.substr(0, value.find('='))) == nullptr) continue;
      fail(ExitCode::usage, "{} has no value: {} is a flag", option->get_name(), value);
    }
  }
}

/// Returns the check that every number has: it fits its type, is finite, and is in bounds, which help describes as
/// `meaning`.
template <class Number>
CLI::Validator number(Number low = std::numeric_limits<Number>::lowest(),
                      Number high = std::numeric_limits<Number>::max(), const std::string& meaning = "") {
  const auto check = [=](std::string& text) {
    const std::optional<Number> value = number_of<Number>(text);
    if (value && *value >= low && *value <= high) return std::string();  // NaN and infinity fail
    if (std::is_integral_v<Number>) return fmt::format("{} is not a whole number from {} to {}", text, low, high);
    return fmt::format("{} must be a finite number{}{}", text, meaning.empty() ? "" : ": ", meaning);
  };
  return CLI::Validator(check, meaning.empty() ? "" : bounds_mark + meaning);
}

inline CLI::Validator at_least(std::int64_t least) {
  return number<std::int64_t>(least, INT64_MAX, fmt::format("{} or more", least));
}
inline CLI::Validator within(std::int64_t low, std::int64_t high) {
  return number(low, high, fmt::format("{} to {}", low, high));
}

/// Returns the check that a text is one of these words.
inline CLI::Validator one_of(const std::vector<std::string>& words) {
  const auto check = [=](std::string& text) {
    return std::ranges::count(words, text) > 0 ? "" : fmt::format("{} is not one of {}", text, fmt::join(words, ", "));
  };
  return CLI::Validator(check, "");
}

inline CLI::Validator real_at_least(double low) {
  return number(low, std::numeric_limits<double>::max(), fmt::format("{} or more", low));
}
inline CLI::Validator real_above(double low) {
  return number(std::nextafter(low, low + 1), std::numeric_limits<double>::max(), fmt::format("more than {}", low));
}
inline CLI::Validator real_within(double low, double high) {
  return number(low, high, fmt::format("from {} to {}", low, high));
}

/// A CLI11 command line that checks every number.
class CommandLine : public CLI::App {
 public:
  using CLI::App::App;

  /// Adds an option of text, integers, or names; one or several. type: help's name for its value. Help shows a default
  /// that is neither 0 nor empty.
  template <class Value>
  CLI::Option* add_option(const std::string& name, Value& value, const std::string& type,
                          const std::string& description) {
    using Element = decltype(element_of(value));
    static_assert(std::is_same_v<Element, std::string> || std::is_integral_v<Element> || std::is_enum_v<Element>,
                  "a real number has a range: add_real()");
    CLI::Option* const option = CLI::App::add_option(name, value, description)->type_name(type);
    if constexpr (std::is_integral_v<Element> && !std::is_same_v<Element, bool>) option->check(number<Element>());
    if constexpr (std::is_same_v<Element, Value> && !std::is_enum_v<Value>) {
      if (value != Value{}) option->capture_default_str();
    }
    return option;
  }
  CLI::Option* add_real(const std::string& name, double& value, const CLI::Validator& range, const std::string& type,
                        const std::string& description) {
    return CLI::App::add_option(name, value, description)->type_name(type)->check(range);
  }
  /// Adds an option of one or several numbers of tokens: 4096, 16K, 1M (token_count()).
  template <class Value>
  CLI::Option* add_tokens(const std::string& name, Value& value, const std::string& type,
                          const std::string& description) {
    const auto in_digits = [](std::string& text) {
      if (const std::optional<std::int64_t> count = token_count(text)) text = std::to_string(*count);
      return std::string();
    };
    return add_option(name, value, type, description)->transform(CLI::Validator(in_digits, ""));
  }
  /// Adds an option of one of these words, each of which means a value.
  template <class Choice, class Value>
  CLI::Option* add_choice(const std::string& name, Value& value,
                          const std::vector<std::pair<std::string, Choice>>& choices, const std::string& description) {
    std::vector<std::string> words;
    for (const auto& [word, meaning] : choices) words.push_back(word);
    const auto take = [choices, &value](const std::string& given) {
      for (const auto& [word, meaning] : choices) {
        if (word == given) value = meaning;
      }
    };
    return CLI::App::add_option_function<std::string>(name, take, description)
        ->check(one_of(words))
        ->type_name(fmt::format("{}", fmt::join(words, "|")));
  }
  /// Adds an option of a number of bytes: 4096, 5GB, 1GiB.
  CLI::Option* add_bytes(const std::string& name, std::int64_t& value, const std::string& type,
                         const std::string& description) {
    return add_option(name, value, type, description)
        ->check(number<std::int64_t>(1))
        ->transform(CLI::AsSizeValue(/*kb_is_1000=*/true).description(""));
  }
  /// Adds a flag that was removed, or that this build leaves out: it ends the program with a message, of which its name
  /// is the subject. Help does not show it.
  void add_refused(const std::string& name, const std::string& predicate) {
    const auto refuse = [=](const std::string&) { fail(ExitCode::usage, "{} {}", name, predicate); };
    add_option_function<std::string>(name, refuse)->expected(0, 1)->group("");
  }
  /// Accepts a flag's old name, too, until version 0.3: "--seq-len", "--tokens".
  void add_old_name(const std::string& name, const std::string& old_name) { present_names_[old_name] = name; }
  /// Returns the arguments after the program's name with old flag names replaced. tells: whether to print a message.
  std::vector<std::string> in_present_names(int argc, char** argv, bool tells) const {
    std::vector<std::string> arguments(argv + 1, argv + argc);
    for (std::string& argument : arguments) {
      const auto renamed = present_names_.find(argument.substr(0, argument.find('=')));
      if (renamed == present_names_.end()) continue;
      const auto& [old_name, name] = *renamed;
      argument.replace(0, old_name.size(), name);
      if (!tells) continue;
      write_message(stderr, fmt::format("{}: {} is called {} now; the old name works until version 0.3\n", get_name(),
                                        old_name, name));
    }
    return arguments;
  }
  /// Adds the flags of a program that computes with a model's weights.
  void add_computation(Computation& options) {
    constexpr std::int64_t max_threads = 1024;  // as in a config
    add_option("--threads-per-rank", options.threads_per_rank, "N", "compute threads of each rank; 0: cores / ranks")
        ->capture_default_str()
        ->check(within(0, max_threads));
    add_option("--device", options.device, "auto|cpu|cuda",
               "auto: cuda if the checkpoint was made there and this build has it")
        ->capture_default_str()
        ->check(one_of({"auto", "cpu", "cuda"}));
    add_flag("--shard-weights", options.shard_weights,
             "each rank holds a part of the weights, and gathers those of a layer when it needs them (default: as in "
             "training)");
    add_option("--dtype", options.dtype, "float32|float64|bfloat16",
               "data type of the arithmetic (default: the checkpoint's; else float32)")
        ->check(one_of({"float32", "float64", "bfloat16"}));
    add_flag("--share-gpu", options.share_gpu, "let processes share a GPU, for tests only (as the key mesh.share_gpu)");
  }

 private:
  std::map<std::string, std::string> present_names_;  // by the old ones

  // Only their types matter: of an option's one value, or of each of several.
  template <class Value>
  static Value element_of(const Value& value);
  template <class Value>
  static Value element_of(const std::vector<Value>& values);
};

/// Adds --begin-token, which sets an id, or -1 for no token. description: the flag's meaning in this program.
inline void add_begin_token(CommandLine& app, std::optional<std::int32_t>& token, const std::string& description) {
  const auto check = [](std::string& given) {
    const std::optional<std::int32_t> id = number_of<std::int32_t>(given);
    return given == "none" || (id && *id >= 0) ? std::string() : given + " is neither none nor a token's id";
  };
  const auto take = [&token](const std::string& given) {
    token = given == "none" ? -1 : number_of<std::int32_t>(given);
  };
  app.add_option_function<std::string>("--begin-token", take, description)
      ->type_name("none|ID")
      ->check(CLI::Validator(check, ""));
}

/// Parses the value of --mesh, DATAxSEQUENCE: data ranks and sequence ranks, together at most `most`.
inline void read_mesh(std::string_view text, std::int64_t& data, std::int64_t& sequence, std::int64_t most = 1024) {
  const bool pair = take_pair(text, data, 'x', sequence) && data >= 1 && sequence >= 1;
  if (pair && data <= most && sequence <= most && data * sequence <= most) return;
  fail(ExitCode::usage, "--mesh {}: must be DATAxSEQUENCE, together at most {} ranks, e.g. 2x4", text, most);
}

/// Adds the flags that change keys of a config: --set, and --mesh for two of them, together at most `most`. Both append
/// to settings.
inline void add_settings(CommandLine& app, std::vector<std::string>& settings, std::int64_t most = 1024) {
  app.add_option("--set", settings, "KEY.PATH=VALUE",
                 "change one key of the config, e.g. --set training.steps=20; may be repeated")
      ->allow_extra_args(false);
  const auto take = [&settings, most](const std::string& text) {
    std::int64_t data = 0, sequence = 0;
    read_mesh(text, data, sequence, most);
    settings.push_back(fmt::format("mesh.data={}", data));
    settings.push_back(fmt::format("mesh.sequence={}", sequence));
  };
  app.add_option_function<std::string>("--mesh", take, "data ranks x sequence ranks, instead of the config's")
      ->type_name("DATAxSEQUENCE");
}

/// Parses into the app's options. Returns false if help (or the version) was requested and has been printed. prints:
/// whether this process prints it.
inline bool parse_command_line(CommandLine& app, int argc, char** argv, bool prints = true) {
  app.formatter(std::make_shared<HelpFormatter>());
  app.set_version_flag("--version", version_text(), "print version, commit and build options");
  try {
    std::vector<std::string> arguments = app.in_present_names(argc, argv, prints);
    // CLI11 2.1 would require the required options first.
    if (std::ranges::count(arguments, "--version") > 0) throw CLI::CallForVersion(version_text(), 0);
    for (const std::string& argument : arguments) {
      // CLI11 would take the next argument as the value.
      if (!argument.starts_with("--") || argument.find('=') != argument.size() - 1) continue;
      const bool is_flag = app.get_option_no_throw(argument.substr(0, argument.size() - 1)) != nullptr;
      if (is_flag) fail(ExitCode::usage, "{} has no value", argument);
    }
    std::ranges::reverse(arguments);  // CLI11 takes them in this order
    app.parse(std::move(arguments));
    refuse_missing_values(app);
    return true;
  } catch (const CLI::Success& asked) {
    if (prints) app.exit(asked);
    return false;
  } catch (const CLI::ParseError& error) {
    const std::string wrong = wrong_arguments(app, error);
    fail(ExitCode::usage, "{}{} {} --help", wrong, wrong.ends_with('?') ? " See" : "; see", app.get_name());
  }
}

}  // namespace ringtrain
