// Texts of long-context tasks from our own seeded generator, with the structure of RULER (Hsieh et al., arXiv
// 2404.06654): needles between the sentences of a haystack, at depths from its first sentence to its last, then a
// question whose answer they contain. The question of one kind shares no word with its needle (NoLiMa, Modarressi et
// al., arXiv 2502.05167). Pure: a text is a function of its settings and depends on no model or tokenizer.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "framework/config/named.h"

namespace ringtrain {

enum class TaskKind {
  single,      // one needle, "the magic number for KEY is VALUE", and its value
  multikey,    // several needles of that form, one of which the question asks for
  multivalue,  // several values of one key; the question asks for all
  multiquery,  // several keys; the question asks for the values of all
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

struct TaskSettings {
  std::int64_t candidates = 8;  // of an answer, including the right one
  std::int64_t depths = 5;      // evenly from the haystack's beginning to its end
  std::int64_t samples = 8;     // for each kind, length, and depth
  std::uint64_t seed = 1;
};

/// A sentence within the haystack. depth: which of settings.depths; needles of one depth keep their order.
struct Needle {
  std::string sentence;
  std::int64_t depth = 0;
};

/// A scored part of the answer.
struct TaskAnswer {
  std::string before;               // unscored text between the preceding text and this part
  std::string right;                // begins with a space
  std::vector<std::string> others;  // wrong ones of the same form, starting with those in the text
  std::int64_t depth = 0;           // of its needle
};

struct TaskText {
  std::string opening;
  std::vector<Needle> needles;  // in the order of the text
  std::string question;         // up to the beginning of the answer
  std::vector<TaskAnswer> answers;
};

/// Returns a text without its haystack. depth: that of the needle that the question asks for, or of one of several.
TaskText make_task(TaskKind kind, const TaskSettings& settings, std::int64_t length, std::int64_t depth,
                   std::int64_t sample);
/// Returns the prompt: the text with this many sentences of haystack, which the same draw determines.
std::string prompt_of(const TaskText& text, const TaskSettings& settings, std::int64_t sentences, std::uint64_t draw);
/// Returns the depth as a fraction of the haystack, from 0 to 1.
double depth_share(const TaskSettings& settings, std::int64_t depth);

}  // namespace ringtrain
