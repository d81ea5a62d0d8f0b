#include "parallel/launch/agreement.h"

#include <algorithm>

#include "parallel/collectives.h"

namespace ringtrain {

namespace {

constexpr CallSite comparing_inputs{"comparing the inputs of the ranks"};
constexpr std::size_t shown = 200;  // bytes of a value in a message

/// Returns the facts as bytes: each name and value, terminated by 0.
std::string encoded(const std::vector<AgreedValue>& facts) {
  std::string text;
  for (const AgreedValue& fact : facts) text += fact.name + '\0' + fact.value + '\0';
  return text;
}

std::vector<AgreedValue> decoded(const std::string& text) {
  std::vector<AgreedValue> facts;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t name_end = text.find('\0', at), value_end = text.find('\0', name_end + 1);
    facts.push_back({text.substr(at, name_end - at), text.substr(name_end + 1, value_end - name_end - 1)});
    at = value_end + 1;
  }
  return facts;
}

/// Returns the value of the fact with this name, or null if there is none: a config key with its default.
const std::string* value_in(const std::vector<AgreedValue>& facts, const std::string& name) {
  const auto found = std::ranges::find(facts, name, &AgreedValue::name);
  return found == facts.end() ? nullptr : &found->value;
}

/// Returns a value; if it is long, what surrounds the byte at which it differs.
std::string shortened(const std::string* value, std::size_t difference) {
  if (!value) return "its default";
  const std::size_t begin = value->size() > shown && difference > shown / 2 ? difference - shown / 2 : 0;
  return (begin > 0 ? "..." : "") + value->substr(begin, shown) + (begin + shown < value->size() ? "..." : "");
}

}  // namespace

void require_agreement(Communicator& communicator, const std::vector<AgreedValue>& facts) {
  const std::vector<AgreedValue> first = decoded(broadcast_text(communicator, encoded(facts), 0, comparing_inputs));
  std::string differences;
  const auto compare = [&](const std::string& name) {
    const std::string *ours = value_in(facts, name), *theirs = value_in(first, name);
    if (ours && theirs && *ours == *theirs) return;
    const std::ptrdiff_t at = ours && theirs ? std::ranges::mismatch(*ours, *theirs).in1 - ours->begin() : 0;
    differences += fmt::format("{}{} is {} on rank 0, and {} here", differences.empty() ? "" : "; ", name,
                               shortened(theirs, at), shortened(ours, at));
  };
  for (const AgreedValue& fact : first) compare(fact.name);
  for (const AgreedValue& fact : facts) {
    if (!value_in(first, fact.name)) compare(fact.name);
  }
  if (!differences.empty()) {
    fail(ExitCode::usage, "rank {} of {} differs from rank 0: {}; give every process the same config and files",
         communicator.rank(), communicator.size(), differences);
  }
  communicator.barrier(comparing_inputs);
}

}  // namespace ringtrain
