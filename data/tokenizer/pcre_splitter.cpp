// Patterns that no scanner knows, run by PCRE2 with its JIT. The text is well formed, which the caller has seen to
// once: without PCRE2_NO_UTF_CHECK every match would check the rest of the text again.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "data/tokenizer/pattern.h"
#include "data/tokenizer/splitter.h"
#include "framework/error.h"
#include "framework/text/utf8.h"

namespace ringtrain {

namespace {

constexpr std::size_t stack_start = 64 << 10, stack_limit = 16 << 20;

/// Steps of one match: tokenizers' patterns need a few dozen, a hostile one any number.
constexpr std::uint32_t match_limit = 1 << 20;

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

/// A compiled pattern. Immutable; used by several threads at once.
struct Pattern {
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

/// Keeps what a match needs, its stack above all: making that anew costs more than most texts do.
class PcreSplitter final : public Splitter {
 public:
  explicit PcreSplitter(std::shared_ptr<const Pattern> pattern)
      : pattern_(std::move(pattern)),
        data_(pcre2_match_data_create_from_pattern(pattern_->code.get(), nullptr)),
        context_(pcre2_match_context_create(nullptr)) {
    if (!data_ || !context_) throw std::bad_alloc();
    pcre2_set_match_limit(context_.get(), match_limit);
    if (!pattern_->jit) return;
    stack_.reset(pcre2_jit_stack_create(stack_start, stack_limit, nullptr));
    pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
  }

  void split(std::string_view text, std::vector<std::size_t>& ends) override {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    std::size_t done = 0, at = 0;  // the end of the last piece; where to look for the next match
    bool matched = false;          // whether a match ends at `done`
    while (at < text.size()) {
      const int found =
          pcre2_match(pattern_->code.get(), subject, text.size(), at, PCRE2_NO_UTF_CHECK, data_.get(), context_.get());
      if (found == PCRE2_ERROR_NOMATCH) break;
      if (found < 0) {
        fail(ExitCode::data, "the tokenizer's pattern {} gives up at byte {} of a text of {}: {}", pattern_->text, at,
             text.size(), message_of(found));
      }
      const PCRE2_SIZE* place = pcre2_get_ovector_pointer(data_.get());
      if (place[0] == place[1] && matched && place[1] == done) {  // of no width, right after a match: none
        at += decode_utf8(subject + at).bytes;
        continue;
      }
      if (place[0] > done) ends.push_back(place[0]);  // what stands between matches
      if (place[1] > place[0]) ends.push_back(place[1]);
      done = at = place[1];
      matched = true;
    }
    if (done < text.size()) ends.push_back(text.size());
  }
  std::unique_ptr<Splitter> clone() const override { return std::make_unique<PcreSplitter>(pattern_); }

 private:
  std::shared_ptr<const Pattern> pattern_;
  std::unique_ptr<pcre2_match_data, Free> data_;
  std::unique_ptr<pcre2_match_context, Free> context_;
  std::unique_ptr<pcre2_jit_stack, Free> stack_;
};

}  // namespace

std::unique_ptr<Splitter> make_splitter(const std::string& pattern, const std::string& where) {
  if (std::unique_ptr<Splitter> known = make_known_splitter(pattern)) return known;
  return std::make_unique<PcreSplitter>(std::make_shared<const Pattern>(pattern, where));
}

}  // namespace ringtrain
