#include "train/models/adapters/peft_targets.h"

#include <fmt/ranges.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <memory>
#include <new>
#include <string_view>

#include "framework/config/config_problems.h"
#include "framework/error.h"
#include "framework/storage/strict_json.h"
#include "layers/model_parameters.h"

namespace ringtrain {

namespace {

constexpr const char* all_linear = "all-linear";

/// Steps of one match: a pattern for names of 50 letters needs hundreds; a hostile one can need any number.
constexpr std::uint32_t match_limit = 20000;

/// Returns a part of a pattern that Python's `re` and PCRE2 may read differently, "" if there is none.
std::string read_differently(std::string_view pattern) {
  constexpr std::string_view letters = "dDwWsSbBAZ";
  constexpr std::string_view groups[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?P<"};
  bool in_class = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const std::string_view tail = pattern.substr(i);
    const auto byte = static_cast<unsigned char>(tail[0]);
    if (byte < 0x20 || byte > 0x7E) return "a character that is not ASCII";
    if (tail[0] == '\\') {
      const char next = tail.size() > 1 ? tail[1] : '\0';
      const bool word = std::isalnum(static_cast<unsigned char>(next)) != 0 || next == '\0';
      if (word && letters.find(next) == std::string_view::npos) return std::string(tail.substr(0, 2));
      ++i;
    } else if (in_class) {
      in_class = tail[0] != ']';
      if (tail.starts_with("[:") || tail.starts_with("[.") || tail.starts_with("[="))
        return "[" + std::string(tail.substr(0, 2));
    } else if (tail[0] == '[') {
      in_class = true;
      i += tail.starts_with("[^]") ? 2 : tail.starts_with("[]") || tail.starts_with("[^") ? 1 : 0;
    } else if (tail.starts_with("(*") || tail.starts_with("{,")) {
      return std::string(tail.substr(0, 2));
    } else if (tail.starts_with("(?") &&
               std::ranges::none_of(groups, [&](std::string_view group) { return tail.starts_with(group); })) {
      return std::string(tail.substr(0, 3));
    }
  }
  return "";
}

/// A pattern that must match whole names, as Python's re.fullmatch does.
class NamePattern {
 public:
  NamePattern(const std::string& pattern, const std::string& path) : pattern_(pattern), path_(path) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                              PCRE2_ANCHORED | PCRE2_ENDANCHORED, &error, &offset, nullptr));
    if (!code_) refuse("cannot be compiled", error);
    data_.reset(pcre2_match_data_create_from_pattern(code_.get(), nullptr));
    context_.reset(pcre2_match_context_create(nullptr));
    if (!data_ || !context_) throw std::bad_alloc();
    pcre2_set_match_limit(context_.get(), match_limit);
  }

  bool matches(const std::string& name) const {
    const int found = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(name.data()), name.size(), 0, 0,
                                  data_.get(), context_.get());
    if (found < 0 && found != PCRE2_ERROR_NOMATCH) refuse("gives up at " + name, found);
    return found >= 0;
  }

 private:
  template <auto free>
  struct Free {
    void operator()(auto* pointer) const { free(pointer); }
  };
  [[noreturn]] void refuse(const std::string& what, int error) const {
    PCRE2_UCHAR text[256];
    pcre2_get_error_message(error, text, sizeof text);
    fail(ExitCode::checkpoint, "{}: target_modules: the pattern \"{}\" {}: {}", path_, excerpt(pattern_), what,
         reinterpret_cast<const char*>(text));
  }

  const std::string& pattern_;
  const std::string& path_;
  std::unique_ptr<pcre2_code, Free<pcre2_code_free>> code_;
  std::unique_ptr<pcre2_match_data, Free<pcre2_match_data_free>> data_;
  std::unique_ptr<pcre2_match_context, Free<pcre2_match_context_free>> context_;
};

/// Returns the shortest names that select exactly these modules of a model.
std::vector<std::string> shortest_names(const std::vector<std::string>& all, const std::set<std::string>& some) {
  std::set<std::string> names;
  for (const std::string& module : some) {
    const std::string projection = projection_of(module + ".weight");
    const bool everywhere = std::ranges::all_of(all, [&](const std::string& other) {
      return projection_of(other + ".weight") != projection || some.contains(other);
    });
    names.insert(everywhere ? projection : module);
  }
  return {names.begin(), names.end()};
}

}  // namespace

PeftTargets read_targets(JsonKeys& keys) {
  PeftTargets targets;
  if (!keys.has("target_modules")) {
    keys.refuse("target_modules", "must be a list of projections, such as [\"q_proj\", \"v_proj\"], or a pattern");
  }
  if (keys.at("target_modules").is_string()) {
    targets.pattern = keys.text("target_modules", "");
    if (const std::string part = read_differently(targets.pattern); !part.empty()) {
      keys.refuse("target_modules", "\"{}\" has {}, which Python and PCRE2 may read in different ways; give a list",
                  excerpt(targets.pattern), part);
    }
  } else {
    targets.names = keys.texts("target_modules");
    std::ranges::sort(targets.names);
  }
  if (!keys.has("layers_to_transform")) return targets;
  const nlohmann::json& layers = keys.at("layers_to_transform");
  if (!targets.pattern.empty()) keys.refuse("layers_to_transform", "cannot be combined with a pattern, as in PEFT");
  std::set<std::int64_t> some;
  for (const nlohmann::json& layer : layers.is_array() ? layers : nlohmann::json::array({layers})) {
    const std::optional<std::int64_t> number = whole_number(layer);
    if (!number)
      keys.refuse("layers_to_transform", "is {}, but must be a layer's number, or a list of them", shown(layers));
    some.insert(*number);
  }
  if (!some.empty()) targets.layers = std::move(some);  // PEFT: an empty list means no list
  if (keys.has("layers_pattern") && !asks_for_nothing(keys.at("layers_pattern"))) {
    const nlohmann::json& pattern = keys.at("layers_pattern");
    if (pattern != "layers" && pattern != nlohmann::json{"layers"}) {
      keys.refuse("layers_pattern", "is {}, but the list of layers is called \"layers\" in this class", shown(pattern));
    }
  }
  return targets;
}

std::vector<std::string> resolved(const PeftTargets& targets, const ModelSpec& spec, const std::string& path) {
  const std::vector<std::string> modules = adaptable_modules(spec);
  const std::set<std::string> ends(targets.names.begin(), targets.names.end());
  std::set<std::string> known;
  for (const std::string& module : modules) known.merge(ends_of(module));
  for (const std::string& name : ends) {
    if (known.contains(name)) continue;
    fail(ExitCode::checkpoint, "{}: target_modules: {} is not a supported projection; the supported ones are {}", path,
         excerpt(name), fmt::join(projections_of(spec), ", "));
  }
  if (targets.pattern.empty() && !targets.layers) return targets.names;
  std::optional<NamePattern> pattern;
  if (!targets.pattern.empty() && targets.pattern != all_linear) pattern.emplace(targets.pattern, path);
  for (const char* const outside : {"lm_head", "model.embed_tokens"}) {
    if (!pattern || !pattern->matches(outside)) continue;
    fail(ExitCode::checkpoint, "{}: target_modules: the pattern \"{}\" also matches {}, which has no adapter here",
         path, excerpt(targets.pattern), outside);
  }
  const auto is_meant = [&](const std::string& module) {
    if (targets.pattern == all_linear) return true;
    if (pattern) return pattern->matches(module);
    const std::int64_t layer = std::stoll(module.substr(module.find_first_of("0123456789")));
    return ends.contains(module) || (is_named(module, ends) && targets.layers->contains(layer));
  };
  std::set<std::string> adapted;
  std::ranges::copy_if(modules, std::inserter(adapted, adapted.end()), is_meant);
  if (adapted.empty()) {
    fail(ExitCode::checkpoint, "{}: target_modules: no projection of this model matches; an example of a name is {}",
         path, modules.front());
  }
  return shortest_names(modules, adapted);
}

}  // namespace ringtrain
