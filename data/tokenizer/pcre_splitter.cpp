// Patterns that no scanner knows, run by PCRE2 with its JIT. The text is well formed, which the caller has seen to
// once: without PCRE2_NO_UTF_CHECK every match would check the rest of the text again. Under PCRE2_UCP its \s also
// takes U+180E, which the engines of the tokenizers' authors do not; so \s is written out as the property White_Space.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "data/tokenizer/splitter.h"
#include "framework/error.h"

namespace ringtrain {

namespace {

/// White_Space, to stand within brackets.
constexpr const char* white_space =
    R"(\x{09}-\x{0D}\x{20}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
constexpr std::size_t stack_start = 64 << 10, stack_limit = 16 << 20;

/// Steps of one match: tokenizers' patterns need a few dozen, a hostile one any number.
constexpr std::uint32_t match_limit = 1 << 20;

/// Return the pattern with \s and \S written out. (\S within brackets has no such form and stays.)
std::string written_out(const std::string& pattern) {
  std::string result;
  bool brackets = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char next = pattern[++i];
      if (next == 's') {
        result += brackets ? white_space : std::string("[") + white_space + "]";
      } else if (next == 'S' && !brackets) {
        result += std::string("[^") + white_space + "]";
      } else {
        result += {c, next};
      }
      continue;
    }
    if (c == '[' && !brackets) brackets = true;
    if (c == ']') brackets = false;
    result += c;
  }
  return result;
}

std::string message_of(int error) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

struct Free {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  void operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
};

class PcreSplitter final : public Splitter {
 public:
  PcreSplitter(const std::string& pattern, const std::string& where) : pattern_(pattern) {
    const std::string text = written_out(pattern);
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), PCRE2_UTF | PCRE2_UCP, &error,
                              &offset, nullptr));
    if (!code_) {
      fail(ExitCode::data, "{}: its pattern {} cannot be compiled: {}; use a tokenizer with another pattern", where,
           pattern, message_of(error));
    }
    jit_ = pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE) == 0;
  }

  void split(std::string_view text, std::vector<std::size_t>& ends) const override {
    const std::unique_ptr<pcre2_match_data, Free> data(pcre2_match_data_create_from_pattern(code_.get(), nullptr));
    const std::unique_ptr<pcre2_match_context, Free> context(pcre2_match_context_create(nullptr));
    std::unique_ptr<pcre2_jit_stack, Free> stack;
    if (!data || !context) throw std::bad_alloc();
    pcre2_set_match_limit(context.get(), match_limit);
    if (jit_) {
      stack.reset(pcre2_jit_stack_create(stack_start, stack_limit, nullptr));
      pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
    }
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    std::size_t done = 0, at = 0;  // the end of the last piece; where to look for the next match
    while (at < text.size()) {
      const int found = pcre2_match(code_.get(), subject, text.size(), at, PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY,
                                    data.get(), context.get());
      if (found == PCRE2_ERROR_NOMATCH) break;
      if (found < 0) {
        fail(ExitCode::data, "the tokenizer's pattern {} gives up at byte {} of a text of {}: {}", pattern_, at,
             text.size(), message_of(found));
      }
      const PCRE2_SIZE* place = pcre2_get_ovector_pointer(data.get());
      if (place[0] > done) ends.push_back(place[0]);  // what stands between matches
      ends.push_back(place[1]);
      done = at = place[1];
    }
    if (done < text.size()) ends.push_back(text.size());
  }

 private:
  std::string pattern_;
  std::unique_ptr<pcre2_code, Free> code_;
  bool jit_ = false;
};

}  // namespace

std::unique_ptr<Splitter> make_splitter(const std::string& pattern, const std::string& where) {
  if (std::unique_ptr<Splitter> known = make_known_splitter(pattern)) return known;
  return std::make_unique<PcreSplitter>(pattern, where);
}

}  // namespace ringtrain
