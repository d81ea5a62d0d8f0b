// Texts of long-context tasks from a seeded generator of our own, with the structure of RULER (Hsieh et al., arXiv
// 2404.06654): needles between the sentences of a haystack, at depths from its first sentence to its last, then a
// question whose answer they hold. One kind has a question that shares no word with its needle (NoLiMa, Modarressi et
// al., arXiv 2502.05167). Pure: a text is a function of its settings, and no model and no tokenizer matters.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "framework/config/named.h"

namespace ringtrain {

enum class TaskKind {
  single,      // one needle, "the magic number for KEY is VALUE", and its value
  multikey,    // several needles of that form, one of which is asked for
  multivalue,  // several values of one key, all of which are asked for
  multiquery,  // several keys, all of whose values are asked for
  variables,   // VAR A = 12345, VAR B = VAR A, ...: all variables of that value (variable tracking)
  association  // "NAME lives next to the Eiffel Tower": who has visited Paris?
};
inline constexpr std::array task_names{
    Named{TaskKind::single, "single"},         Named{TaskKind::multikey, "multikey"},
    Named{TaskKind::multivalue, "multivalue"}, Named{TaskKind::multiquery, "multiquery"},
    Named{TaskKind::variables, "variables"},   Named{TaskKind::association, "association"}};
inline constexpr std::array all_tasks = values_of(task_names);
inline const char* name_of(TaskKind kind) {
  return name_in(task_names, kind);
}

/// Numbers of needles are RULER's.
struct TaskSettings {
  std::int64_t keys = 4;        // of multikey and of association
  std::int64_t values = 4;      // of multivalue
  std::int64_t queries = 4;     // of multiquery
  std::int64_t hops = 4;        // of variables: one more of them
  std::int64_t candidates = 8;  // of an answer, the right one among them
  std::int64_t depths = 5;      // evenly from the haystack's begin to its end
  std::int64_t samples = 8;     // of each kind, length and depth
  std::uint64_t seed = 1;
};

/// A sentence within the haystack. depth: which of settings.depths; needles of one depth keep their order.
struct Needle {
  std::string sentence;
  std::int64_t depth = 0;
};

/// A part of the answer that is scored.
struct TaskAnswer {
  std::string before;               // text between it and what precedes it, which is not scored
  std::string right;                // begins with a space
  std::vector<std::string> others;  // wrong ones of the same form, those that stand in the text first
  std::int64_t depth = 0;           // of its needle
};

struct TaskText {
  std::string opening;
  std::vector<Needle> needles;  // in the order of the text
  std::string question;         // up to where the answer begins
  std::vector<TaskAnswer> answers;
};

/// Returns a text without its haystack. depth: of the needle that is asked for; where several are, of one of them.
TaskText make_task(TaskKind kind, const TaskSettings& settings, std::int64_t length, std::int64_t depth,
                   std::int64_t sample);
/// Returns the prompt: the text with so many sentences of haystack, drawn like it.
std::string prompt_of(const TaskText& text, const TaskSettings& settings, std::int64_t sentences, std::uint64_t draw);
/// Returns the depth as a part of the haystack, from 0 to 1.
double depth_share(const TaskSettings& settings, std::int64_t depth);

}  // namespace ringtrain
