// The caller has checked once that the text is well formed: without PCRE2_NO_UTF_CHECK, every match would check the
// rest of the text again.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "data/tokenizer/splitter.h"

#include <pcre2.h>

#include <algorithm>

#include "data/tokenizer/pattern.h"
#include "data/tokenizer/unicode.h"
#include "framework/error.h"

namespace ringtrain {

namespace {

constexpr std::size_t stack_start = 64 << 10, stack_limit = 16 << 20;

/// Limit of the steps of one match: a piece of 4 MiB may take one per byte, a malicious pattern any number.
constexpr std::uint32_t match_limit = 1 << 24;

std::string message_of(int error) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

bool is_ascii_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

}  // namespace

struct Splitter::Free {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  void operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
};

/// A compiled pattern. Immutable; used by several threads at once.
struct Splitter::Pattern {
  Pattern(const std::string& pattern, const std::string& where) : text(pattern) {
    const std::string written = pattern_for_pcre(pattern, where);
    int error = 0;
    PCRE2_SIZE offset = 0;
    code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(written.data()), written.size(), PCRE2_UTF | PCRE2_UCP,
                             &error, &offset, nullptr));
    if (!code) {
      fail(ExitCode::data, "{}: its pattern {} cannot be compiled: {}; use a tokenizer with another pattern", where,
           pattern, message_of(error));
    }
    jit = pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE) == 0;
  }

  std::string text;
  std::unique_ptr<pcre2_code, Free> code;
  bool jit = false;
};

/// The memory of a match, mainly its stack: allocating it anew costs more than matching most texts.
struct Splitter::Scratch {
  explicit Scratch(const Pattern& pattern)
      : data(pcre2_match_data_create_from_pattern(pattern.code.get(), nullptr)),
        context(pcre2_match_context_create(nullptr)) {
    if (!data || !context) throw std::bad_alloc();
    pcre2_set_match_limit(context.get(), match_limit);
    if (!pattern.jit) return;
    stack.reset(pcre2_jit_stack_create(stack_start, stack_limit, nullptr));
    pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  }

  std::unique_ptr<pcre2_match_data, Free> data;
  std::unique_ptr<pcre2_match_context, Free> context;
  std::unique_ptr<pcre2_jit_stack, Free> stack;
};

Splitter::Splitter(const std::string& pattern, const std::string& where)
    : pattern_(std::make_shared<const Pattern>(pattern, where)), scratch_(std::make_unique<Scratch>(*pattern_)) {}
Splitter::Splitter(const Splitter& other) : pattern_(other.pattern_), scratch_(std::make_unique<Scratch>(*pattern_)) {}
Splitter::~Splitter() = default;

void Splitter::split(std::string_view text, std::vector<std::size_t>& ends) {
  const auto match = pattern_->jit ? pcre2_jit_match : pcre2_match;  // the first makes fewer checks before it starts
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(scratch_->data.get());
  std::size_t done = 0, at = 0;  // the end of the last piece; where to search for the next match
  bool matched = false;          // whether a match ends at `done`
  while (at < text.size()) {
    const int found = match(pattern_->code.get(), subject, text.size(), at, PCRE2_NO_UTF_CHECK, scratch_->data.get(),
                            scratch_->context.get());
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) {
      fail(ExitCode::data, "matching the tokenizer's pattern {} failed at byte {} of a text of {} bytes: {}",
           pattern_->text, at, text.size(), message_of(found));
    }
    if (bounds[0] == bounds[1] && matched && bounds[1] == done) {  // an empty match after another match does not count
      at += decode_utf8(text, at).bytes;
      continue;
    }
    if (bounds[0] > done) ends.push_back(bounds[0]);  // the text between matches
    if (bounds[1] > bounds[0]) ends.push_back(bounds[1]);
    done = at = bounds[1];
    matched = true;
  }
  if (done < text.size()) ends.push_back(text.size());
}

bool is_known_pattern(std::string_view pattern) {
  return std::ranges::find(patterns::known, pattern) != std::end(patterns::known);
}

std::size_t find_safe_cut(std::string_view text) {
  for (std::size_t i = text.size(); i-- > 1;) {
    if (text[i] == ' ') {
      if (i + 1 < text.size() && is_ascii_letter(text[i - 1]) && is_ascii_letter(text[i + 1])) return i;
    } else if (text[i] == '\n') {
      const std::size_t before = code_point_border(text, i - 1);
      if (well_formed_prefix(text.substr(before, i - before)) != i - before) continue;
      if (well_formed_prefix(text.substr(i + 1, 4)) == 0) continue;  // also skipped at the end
      if (!is_white_space(decode_utf8(text, before).value) && is_letter(decode_utf8(text, i + 1).value)) return i + 1;
    }
  }
  return 0;
}

}  // namespace ringtrain
