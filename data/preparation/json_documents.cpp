#include "data/preparation/json_documents.h"

#include <fmt/core.h>

#include <algorithm>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "data/preparation/data_forms.h"
#include "data/preparation/json_line.h"

namespace ringtrain {

namespace {

struct LineField {
  std::string_view raw;
  bool learned = true;
};

LineField field_of(const JsonField& field, const std::string& name, bool learned, const char* advice = "") {
  if (!field.there) throw std::runtime_error(fmt::format("no field \"{}\"{}", name, advice));
  if (!field.is_text) throw std::runtime_error(fmt::format("the field \"{}\" is not text", name));
  return {field.raw, learned};
}

/// Returns the texts of a line.
std::vector<LineField> fields_of(const JsonLine& line, const JsonRules& rules) {
  if (line.conversation && !(line.text.there && rules.text_field_named)) {
    throw std::runtime_error(fmt::format("this is a conversation, which prepare does not read: {}{}", convert_advice,
                                         line.text.there ? ", or name the text's field with --text-field" : ""));
  }
  if (line.text.there || !line.completion.there) {
    return {field_of(line.text, rules.text_field, true, " (name the text's field with --text-field)")};
  }
  return {field_of(line.prompt, "prompt", false), field_of(line.completion, "completion", true)};
}

}  // namespace

LineTexts take_texts(std::span<char> line, const JsonRules& rules) {
  std::vector<LineField> fields = fields_of(scan_json_line({line.data(), line.size()}, rules.text_field), rules);
  // Each is moved forward, so process the first in the line first.
  const bool answer_first = fields.size() == 2 && fields[1].raw.data() < fields[0].raw.data();
  if (answer_first) std::swap(fields[0], fields[1]);
  LineTexts texts;
  for (const auto& [raw, learned] : fields) {
    const std::size_t bytes = unescape_json(raw, line.data() + texts.bytes, &texts.replaced);
    texts.bytes += bytes;
    if (!learned) texts.prompt_bytes = bytes;
  }
  if (answer_first) {
    char* const begin = line.data();
    std::rotate(begin, begin + (texts.bytes - texts.prompt_bytes), begin + texts.bytes);
  }
  if (texts.bytes == texts.prompt_bytes) return {};  // an empty answer would teach to end at once
  return texts;
}

}  // namespace ringtrain
