#include "extras/long_context/key_tokens.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "framework/error.h"
#include "framework/storage/files.h"
#include "framework/storage/strict_json.h"

namespace ringtrain {

bool is_key(double short_nll, double long_nll, const KeyTokenOptions& options) {
  return short_nll - long_nll > options.alpha && long_nll < -options.beta;
}

std::vector<ShortWindow> short_windows(std::int64_t tokens, const KeyTokenOptions& options) {
  std::vector<ShortWindow> windows;
  for (std::int64_t begin = 0; begin < tokens - options.trunc_len; begin += options.sliding_window) {
    const std::int64_t scored = std::min(options.sliding_window, tokens - begin - options.trunc_len);
    windows.push_back({begin, options.trunc_len + scored, scored});
  }
  return windows;
}

std::vector<TextInterval> merged(std::span<const TextInterval> intervals) {
  std::vector<TextInterval> result;
  for (const TextInterval& interval : intervals) {
    if (!result.empty() && result.back().end == interval.begin) {
      result.back().end = interval.end;
    } else {
      result.push_back(interval);
    }
  }
  return result;
}

std::vector<std::int64_t> tokens_within(std::span<const TextInterval> tokens, std::span<const TextInterval> key) {
  std::vector<std::int64_t> within;
  std::size_t i = 0, j = 0;
  while (i < tokens.size() && j < key.size()) {
    if (tokens[i].begin >= key[j].begin && tokens[i].end <= key[j].end) {
      within.push_back(static_cast<std::int64_t>(i++));
    } else if (tokens[i].begin < key[j].begin) {
      ++i;
    } else {
      ++j;
    }
  }
  return within;
}

std::vector<TextInterval> character_intervals(const Tokenizer& tokenizer, std::span<const std::int32_t> ids) {
  const auto begins_character = [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U; };
  std::vector<TextInterval> intervals;
  intervals.reserve(ids.size());
  std::int64_t characters = 0;  // that have begun so far
  for (const std::int32_t id : ids) {
    const std::string text = tokenizer.is_special(id) ? "" : tokenizer.token_text(id);
    const bool continues = !text.empty() && !begins_character(text.front()) && characters > 0;
    const std::int64_t begin = characters - (continues ? 1 : 0);
    characters += std::ranges::count_if(text, begins_character);
    intervals.push_back({begin, characters});
  }
  return intervals;
}

std::string key_set_text(const KeySet& set) {
  nlohmann::ordered_json json{{"evaluator", set.evaluator},
                              {"unit", set.unit},
                              {"trunc_len", set.options.trunc_len},
                              {"sliding_window", set.options.sliding_window},
                              {"alpha", set.options.alpha},
                              {"beta", set.options.beta},
                              {"texts", nlohmann::ordered_json::array()}};
  for (const KeySet::Text& text : set.texts) {
    nlohmann::ordered_json flat = nlohmann::ordered_json::array();
    for (const TextInterval& interval : text.key) flat.insert(flat.end(), {interval.begin, interval.end});
    json["texts"].push_back({{"hash", text.hash}, {"length", text.length}, {"key", flat}});
  }
  return std::string(key_set_head) + json_text(json).substr(1) + "\n";
}

namespace {

std::int64_t count_in(const nlohmann::json& object, const char* name) {
  const auto value = whole_number(object.at(name));
  if (!value || *value < 0) throw std::runtime_error(fmt::format("\"{}\" must be an integer of 0 or more", name));
  return *value;
}

KeySet::Text text_in(const nlohmann::json& object) {
  KeySet::Text text{.hash = object.at("hash"), .length = count_in(object, "length"), .key = {}};
  const nlohmann::json& flat = object.at("key");
  if (!flat.is_array() || flat.size() % 2 != 0) throw std::runtime_error("\"key\" must be a list of begins and ends");
  std::int64_t before = 0;
  for (std::size_t i = 0; i < flat.size(); i += 2) {
    const auto begin = whole_number(flat[i]), end = whole_number(flat[i + 1]);
    if (!begin || !end || *begin < before || *end < *begin || *end > text.length) {
      throw std::runtime_error("\"key\" must hold ascending intervals from 0 to \"length\"");
    }
    text.key.push_back({*begin, *end});
    before = *begin;  // two tokens of one character have the same interval
  }
  return text;
}

}  // namespace

KeySet read_key_set(const std::string& path) {
  const std::string text = read_file(path, ExitCode::data);
  try {
    const nlohmann::json json = parse_strict_json(text);
    if (json.at("written_by") != "ringtrain evaluate --save-path") throw std::runtime_error("another program wrote it");
    KeySet set{.evaluator = json.at("evaluator"), .unit = json.at("unit"), .options = {}, .texts = {}};
    if (set.unit != "characters" && set.unit != "tokens") throw std::runtime_error("its unit is " + set.unit);
    set.options = {count_in(json, "trunc_len"), count_in(json, "sliding_window"), json.at("alpha"), json.at("beta")};
    if (!json.at("texts").is_array()) throw std::runtime_error("\"texts\" must be a list");
    for (const nlohmann::json& entry : json.at("texts")) set.texts.push_back(text_in(entry));
    return set;
  } catch (const std::exception& error) {
    fail(ExitCode::data, "{}: was not written by evaluate --save-path ({}); write it again", path, error.what());
  }
}

}  // namespace ringtrain
