// The scanners of the known patterns (data/tokenizer/splitter.h). Each function takes a position and returns the end of
// the match that the pattern has there; the comments name the alternative of the pattern that a step stands for. Where
// a backtracking engine would give characters back, the code says what is left.
#include <bit>
#include <cstring>

#include "data/tokenizer/splitter.h"
#include "data/tokenizer/unicode.h"

namespace ringtrain {

namespace {

using namespace code_class;
using Byte = unsigned char;

/// Well-formed text with the classes of its code points.
class Scan {
 public:
  explicit Scan(std::string_view text)
      : begin(reinterpret_cast<const Byte*>(text.data())), end(begin + text.size()), classes_(code_classes()) {}

  struct Item {
    std::uint8_t kind = 0;    // its class; 0 at the end of the text
    std::uint32_t bytes = 0;  // 0 at the end of the text
  };
  Item at(const Byte* p) const {
    if (p == end) return {};
    if (*p < 0x80) return {classes_[*p], 1};
    const CodePoint code = decode_utf8(p);
    return {classes_[code.value], code.bytes};
  }
  /// Returns the end of the run of code points from p on for which accepts(class).
  template <class Accepts>
  const Byte* run(const Byte* p, Accepts accepts) const {
    while (p < end) {
      const Item item = at(p);
      if (!accepts(item.kind)) break;
      p += item.bytes;
    }
    return p;
  }
  const Byte* run(const Byte* p, std::uint8_t mask) const {
    return run(p, [mask](std::uint8_t kind) { return (kind & mask) != 0; });
  }
  /// The same for a mask that has letters among others, by words of 8 ASCII letters.
  const Byte* run_of_letters(const Byte* p, std::uint8_t mask) const {
    for (;;) {
      p = ascii_letters(p);
      const Item item = at(p);
      if (!(item.kind & mask)) return p;
      p += item.bytes;
    }
  }

  const Byte* const begin;
  const Byte* const end;

 private:
  /// Returns the end of the ASCII letters from p on, or a place before it that is less than 8 bytes from the text's
  /// end.
  const Byte* ascii_letters(const Byte* p) const {
    constexpr std::uint64_t ones = 0x0101010101010101, top = 0x80 * ones;
    while (end - p >= 8) {
      std::uint64_t word;
      std::memcpy(&word, p, 8);
      const std::uint64_t lower = (word | 0x20 * ones) & ~top;  // each byte below 0x80: no sum carries into the next
      const std::uint64_t letters = (lower + (0x80 - 'a') * ones) & ~(lower + (0x7F - 'z') * ones) & ~word & top;
      const std::uint64_t others = letters ^ top;
      if (others != 0) return p + (std::countr_zero(others) >> 3);
      p += 8;
    }
    return p;
  }

  const std::uint8_t* classes_;
};

/// Returns the end of 's|'t|'re|'ve|'m|'ll|'d at p, p if there is none. With any_case as under (?i:), where U+017F is
/// an s.
template <bool any_case>
const Byte* contraction(const Scan& scan, const Byte* p) {
  if (scan.end - p < 2 || *p != '\'') return p;
  const auto letter_at = [&](std::ptrdiff_t i) -> Byte {
    const Byte c = scan.end - p > i ? p[i] : Byte{0};
    return any_case && c >= 'A' && c <= 'Z' ? static_cast<Byte>(c | 0x20) : c;
  };
  const Byte first = letter_at(1), second = letter_at(2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return p + 2;
  if ((first == 'r' || first == 'v') && second == 'e') return p + 3;
  if (first == 'l' && second == 'l') return p + 3;
  if (any_case && scan.end - p >= 3 && p[1] == 0xC5 && p[2] == 0xBF) return p + 3;
  return p;
}

/// Returns the end of \s+(?!\S)|\s+ at the white space p; with lines, of \s*[\r\n]+|\s+(?!\S)|\s+.
template <bool lines>
const Byte* white_space(const Scan& scan, const Byte* p) {
  const Byte* last = p;        // the run's last code point
  const Byte* line = nullptr;  // after the run's last \r or \n
  const Byte* q = p;
  while (q < scan.end) {
    const Scan::Item item = scan.at(q);
    if (!(item.kind & space)) break;
    last = q;
    q += item.bytes;
    if (item.kind & newline) line = q;
  }
  if (lines && line) return line;
  if (q == scan.end || last == p) return q;
  return last;  // the last one goes to what follows
}

/// Returns the end of [^\s\p{L}\p{N}]+[\r\n]* from p on, the first code point being one of these.
template <bool no_marks, bool slashes>
const Byte* others_and_lines(const Scan& scan, const Byte* p) {
  p = scan.run(p, [](std::uint8_t kind) { return (kind & other) != 0 && !(no_marks && (kind & mark)); });
  while (p < scan.end && (*p == '\r' || *p == '\n' || (slashes && *p == '/'))) ++p;
  return p;
}

/// Returns the end of \p{N}{1,max_digits} at p, whose first code point is one.
template <int max_digits>
const Byte* numbers(const Scan& scan, const Byte* p) {
  for (int i = 0; i < max_digits; ++i) {
    const Scan::Item item = scan.at(p);
    if (!(item.kind & number)) break;
    p += item.bytes;
  }
  return p;
}

struct Gpt2 {
  static const Byte* match(const Scan& scan, const Byte* p) {
    if (const Byte* e = contraction<false>(scan, p); e != p) return e;
    const Scan::Item first = scan.at(p);
    const Byte* body = p;  // behind ` ?`
    Scan::Item item = first;
    if (*p == ' ') {
      ++body;
      item = scan.at(body);
    }
    if (item.kind & letter) return scan.run_of_letters(body + item.bytes, letter);
    for (const std::uint8_t mask : {number, other}) {
      if (item.kind & mask) return scan.run(body + item.bytes, mask);
    }
    return white_space<false>(scan, p);
  }
};

/// Llama-3 and its kin: digits are cut into up to max_digits; letters may take marks along.
template <int max_digits, bool with_marks>
struct Llama3 {
  static constexpr std::uint8_t word = with_marks ? letter | mark : letter;

  static bool is_other(std::uint8_t kind) { return (kind & other) != 0 && !(with_marks && (kind & mark)); }

  static const Byte* match(const Scan& scan, const Byte* p) {
    if (const Byte* e = contraction<true>(scan, p); e != p) return e;
    const Scan::Item first = scan.at(p);
    // [^\r\n\p{L}\p{N}]?\p{L}+
    if (first.kind & word) return scan.run_of_letters(p + first.bytes, word);
    const Scan::Item second = scan.at(p + first.bytes);
    if (!(first.kind & (newline | number)) && (second.kind & word)) {
      return scan.run_of_letters(p + first.bytes + second.bytes, word);
    }
    if (first.kind & number) return numbers<max_digits>(scan, p);
    // ` ?[^\s\p{L}\p{N}]+[\r\n]*`
    if (is_other(first.kind)) return others_and_lines<with_marks, false>(scan, p);
    if (*p == ' ' && is_other(second.kind)) return others_and_lines<with_marks, false>(scan, p + 1);
    return white_space<true>(scan, p);
  }
};

/// Tekken and o200k: words end where lower case is followed by upper case.
template <int max_digits, bool contractions>
struct O200k {
  /// Returns the end of [upper]*[lower]+ at p, null if it does not match there.
  static const Byte* mixed(const Scan& scan, const Byte* p) {
    const Byte* shared = nullptr;  // after the last code point of the upper run that is in both classes
    while (p < scan.end) {
      const Scan::Item item = scan.at(p);
      if (!(item.kind & upper)) break;
      p += item.bytes;
      if (item.kind & lower) shared = p;
    }
    if (scan.at(p).kind & lower) return scan.run(p, lower);
    return shared;  // [upper]* gives back until [lower]+ has one
  }

  static const Byte* word(const Scan& scan, const Byte* p, const Scan::Item& first) {
    const bool prefix = !(first.kind & (newline | letter | number));  // [^\r\n\p{L}\p{N}]?
    const Byte* e = prefix ? mixed(scan, p + first.bytes) : nullptr;
    if (!e) e = mixed(scan, p);
    if (!e) {  // [^\r\n\p{L}\p{N}]?[upper]+[lower]*, whose [lower]* is empty: else the other alternative had matched
      const Byte* start = prefix ? p + first.bytes : p;
      e = scan.run(start, upper);
      if (e == start) return nullptr;
    }
    return contractions ? contraction<true>(scan, e) : e;
  }

  static const Byte* match(const Scan& scan, const Byte* p) {
    const Scan::Item first = scan.at(p);
    if (const Byte* e = word(scan, p, first)) return e;
    if (first.kind & number) return numbers<max_digits>(scan, p);
    if (first.kind & other) return others_and_lines<false, true>(scan, p);
    if (*p == ' ' && (scan.at(p + 1).kind & other)) return others_and_lines<false, true>(scan, p + 1);
    return white_space<true>(scan, p);
  }
};

template <class Pattern>
class KnownSplitter final : public Splitter {
 public:
  void split(std::string_view text, std::vector<std::size_t>& ends) override {
    const Scan scan(text);
    for (const Byte* p = scan.begin; p < scan.end;) {
      p = Pattern::match(scan, p);
      ends.push_back(static_cast<std::size_t>(p - scan.begin));
    }
  }
  std::unique_ptr<Splitter> clone() const override { return std::make_unique<KnownSplitter>(); }
  bool has_safe_cuts() const override { return true; }
};

class DigitsSplitter final : public Splitter {
 public:
  explicit DigitsSplitter(bool individual) : individual_(individual) {}
  void split(std::string_view text, std::vector<std::size_t>& ends) override {
    const Scan scan(text);
    for (const Byte* p = scan.begin; p < scan.end;) {
      const Scan::Item first = scan.at(p);
      const bool digit = (first.kind & number) != 0;
      p += first.bytes;
      if (!digit || !individual_) {
        p = scan.run(p, [digit](std::uint8_t kind) { return ((kind & number) != 0) == digit; });
      }
      ends.push_back(static_cast<std::size_t>(p - scan.begin));
    }
  }
  std::unique_ptr<Splitter> clone() const override { return std::make_unique<DigitsSplitter>(individual_); }
  bool has_safe_cuts() const override { return true; }

 private:
  bool individual_;
};

bool is_ascii_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

}  // namespace

std::unique_ptr<Splitter> make_known_splitter(std::string_view pattern) {
  if (pattern == patterns::gpt2) return std::make_unique<KnownSplitter<Gpt2>>();
  if (pattern == patterns::llama3) return std::make_unique<KnownSplitter<Llama3<3, false>>>();
  if (pattern == patterns::qwen2) return std::make_unique<KnownSplitter<Llama3<1, false>>>();
  if (pattern == patterns::qwen35) return std::make_unique<KnownSplitter<Llama3<1, true>>>();
  if (pattern == patterns::tekken) return std::make_unique<KnownSplitter<O200k<1, false>>>();
  if (pattern == patterns::o200k) return std::make_unique<KnownSplitter<O200k<3, true>>>();
  return nullptr;
}

std::unique_ptr<Splitter> make_digits_splitter(bool individual) {
  return std::make_unique<DigitsSplitter>(individual);
}

std::size_t find_safe_cut(std::string_view text) {
  const Scan scan(text);
  for (std::size_t i = text.size(); i-- > 1;) {
    if (text[i] == ' ') {
      if (i + 1 < text.size() && is_ascii_letter(text[i - 1]) && is_ascii_letter(text[i + 1])) return i;
    } else if (text[i] == '\n') {
      const std::size_t before = code_point_border(text, i - 1);
      if (well_formed_prefix(text.substr(before, i - before)) != i - before) continue;
      if (well_formed_prefix(text.substr(i + 1, 4)) == 0) continue;  // also at the end
      if (!(scan.at(scan.begin + before).kind & space) && (scan.at(scan.begin + i + 1).kind & letter)) return i + 1;
    }
  }
  return 0;
}

}  // namespace ringtrain
