#include "extras/long_context/task_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "framework/random.h"

namespace ringtrain {

namespace {

constexpr std::array<std::string_view, 24> haystack{"The grass is green.",        "The sky is blue.",
                                                    "The sun is yellow.",         "Here we go.",
                                                    "There and back again.",      "It rained all afternoon.",
                                                    "A door stood open.",         "Somebody had left a lamp on.",
                                                    "The kettle began to sing.",  "Two cats slept on the wall.",
                                                    "Bread was cheap that year.", "The road turned left at the mill.",
                                                    "Nobody answered.",           "He wrote a short letter.",
                                                    "She counted the boats.",     "The river was low.",
                                                    "They waited for the ferry.", "A clock struck nine.",
                                                    "Snow lay on the roofs.",     "The soup had gone cold.",
                                                    "It was a quiet morning.",    "The children ran down the hill.",
                                                    "An old dog followed them.",  "The market opened early."};

constexpr std::array<std::string_view, 20> adjectives{
    "amber", "brisk", "calm",  "dusty", "early", "faint",  "gentle", "hollow", "icy",   "jolly",
    "keen",  "lucid", "misty", "noble", "odd",   "placid", "quaint", "rustic", "solid", "tidy"};
constexpr std::array<std::string_view, 20> nouns{"anchor", "basket", "candle", "drum",   "engine", "feather", "garden",
                                                 "hammer", "island", "jacket", "kite",   "ladder", "mirror",  "needle",
                                                 "orchid", "pillow", "quilt",  "ribbon", "saddle", "tunnel"};

constexpr std::array<std::string_view, 26> names{"Alice",  "Boris", "Carla", "Dmitri", "Elena", "Farid", "Greta",
                                                 "Hugo",   "Ines",  "Jonas", "Katja",  "Liam",  "Mona",  "Nils",
                                                 "Olga",   "Pedro", "Quinn", "Rosa",   "Sven",  "Tanja", "Ursula",
                                                 "Viktor", "Wanda", "Xenia", "Yuki",   "Zora"};

struct Place {
  std::string_view landmark, city;
};
constexpr std::array<Place, 14> places{{{"the Eiffel Tower", "Paris"},
                                        {"the Colosseum", "Rome"},
                                        {"the Brandenburg Gate", "Berlin"},
                                        {"Big Ben", "London"},
                                        {"the Statue of Liberty", "New York"},
                                        {"Red Square", "Moscow"},
                                        {"the Acropolis", "Athens"},
                                        {"the Prado", "Madrid"},
                                        {"the Sagrada Familia", "Barcelona"},
                                        {"the Hagia Sophia", "Istanbul"},
                                        {"the Little Mermaid", "Copenhagen"},
                                        {"the Charles Bridge", "Prague"},
                                        {"the Golden Gate Bridge", "San Francisco"},
                                        {"the Semper Opera House", "Dresden"}}};

constexpr std::int64_t several = 4;  // needles, and assignments from one variable to the next, as in RULER
constexpr std::int64_t pool = 300;   // wrong answers among which candidates are chosen

/// Random draws for one text: counter-based, so that no text depends on another.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : seed_(seed) {}
  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(
        random_below(seed_, Purpose::synthetic_data, next_++, static_cast<std::uint64_t>(bound)));
  }
  /// Returns one of a list.
  const auto& among(const auto& list) { return list[below(std::ssize(list))]; }

 private:
  std::uint64_t seed_, next_ = 0;
};

std::string number(Draws& draws) {  // of seven digits, as RULER's
  return fmt::format("{}", 1000000 + draws.below(9000000));
}

std::string variable(Draws& draws) {  // of five capitals, as RULER's
  std::string name;
  for (int i = 0; i < 5; ++i) name += static_cast<char>('A' + draws.below(26));
  return name;
}

std::string key(Draws& draws) {
  const std::int64_t index = draws.below(std::ssize(adjectives) * std::ssize(nouns));
  return fmt::format("{}-{}", adjectives[index / std::ssize(nouns)], nouns[index % std::ssize(nouns)]);
}

std::string person(Draws& draws) {
  return std::string(draws.among(names));
}

std::string landmark(Draws& draws) {
  return std::string(draws.among(places).landmark);
}

/// Makes a text from a draw.
using Make = std::string (*)(Draws&);

/// Returns texts that differ from each other and from those in `known`.
std::vector<std::string> different(Draws& draws, std::int64_t count, Make make, std::set<std::string> known = {}) {
  std::vector<std::string> made;
  while (std::ssize(made) < count) {
    std::string text = make(draws);
    if (known.insert(text).second) made.push_back(std::move(text));
  }
  return made;
}

/// Adds the values that the question asks for, of the needles [first, end), each with wrong answers: first those in the
/// text, then as many as make() must draw. all_right: no value in the text is wrong.
void add_answers(Draws& draws, TaskText& text, const std::vector<std::string>& values, std::size_t first,
                 std::size_t end, bool all_right, std::int64_t wrong, Make make) {
  for (std::size_t i = first; i < end; ++i) {
    TaskAnswer answer{i == first ? "" : ",", " " + values[i], {}, text.needles[i].depth};
    for (const std::string& value : values) {
      if (!all_right && value != values[i]) answer.others.push_back(" " + value);
    }
    for (const std::string& value : different(draws, wrong, make, {values.begin(), values.end()})) {
      answer.others.push_back(" " + value);
    }
    text.answers.push_back(std::move(answer));
  }
}

std::string listed(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == words.size() ? ", and " : ", ") + words[i];
  }
  return text;
}

/// Returns this many depths, including the wanted one, ascending.
std::vector<std::int64_t> depths_with(Draws& draws, const TaskSettings& settings, std::int64_t wanted,
                                      std::int64_t count) {
  std::vector<std::int64_t> depths{wanted};
  while (std::ssize(depths) < count) depths.push_back(draws.below(settings.depths));
  std::ranges::sort(depths);
  return depths;
}

TaskText make_needles(TaskKind kind, const TaskSettings& settings, Draws& draws, std::int64_t depth) {
  const std::int64_t count = kind == TaskKind::single ? 1 : several;
  const bool all = kind == TaskKind::multivalue || kind == TaskKind::multiquery;  // the question asks for all
  const std::vector<std::int64_t> depths = depths_with(draws, settings, depth, count);
  std::vector<std::string> keys = different(draws, count, key);
  if (kind == TaskKind::multivalue) keys.assign(keys.size(), keys.front());
  const std::vector<std::string> values = different(draws, count, number);
  TaskText text;
  text.opening = fmt::format(
      "{} hidden within the following text. Make sure to memorize it. I will quiz you about the {} afterwards.\n",
      all ? "Some special magic numbers are" : "A special magic number is", all ? "numbers" : "number");
  for (std::size_t i = 0; i < keys.size(); ++i) {
    text.needles.push_back(
        {fmt::format("One of the special magic numbers for {} is: {}.", keys[i], values[i]), depths[i]});
  }
  // The needle at the wanted depth; the first of several.
  const std::size_t asked = all ? 0 : static_cast<std::size_t>(std::ranges::find(depths, depth) - depths.begin());
  text.question = fmt::format(
      "\nWhat {0} the special magic {1} for {2} mentioned in the provided text? The special magic {1} for {2} "
      "mentioned in the provided text {3}",
      all ? "are all" : "is", all ? "numbers" : "number", kind == TaskKind::multiquery ? listed(keys) : keys[asked],
      all ? "are" : "is");
  add_answers(draws, text, values, asked, all ? values.size() : asked + 1, kind == TaskKind::multivalue, pool, number);
  return text;
}

TaskText make_variables(const TaskSettings& settings, Draws& draws, std::int64_t depth) {
  const std::int64_t count = several + 1;
  const std::vector<std::int64_t> depths = depths_with(draws, settings, depth, count);
  const std::vector<std::string> chain = different(draws, count, variable);
  const std::string value = fmt::format("{}", 10000 + draws.below(90000));
  TaskText text;
  text.opening = "Memorize and track the chain(s) of variable assignment hidden in the following text.\n\n";
  for (std::size_t i = 0; i < chain.size(); ++i) {
    text.needles.push_back({i == 0 ? fmt::format("VAR {} = {}.", chain[0], value)
                                   : fmt::format("VAR {} = VAR {}.", chain[i], chain[i - 1]),
                            depths[i]});
  }
  text.question = fmt::format(
      "\nQuestion: Find all variables that are assigned the value {0} in the text above. Answer: According to the "
      "chain(s) of variable assignment in the text above, {1} variables are assigned the value {0}, they are:",
      value, count);
  add_answers(draws, text, chain, 0, chain.size(), /*all_right=*/true, pool, variable);
  return text;
}

TaskText make_association(const TaskSettings& settings, Draws& draws, std::int64_t depth) {
  const std::vector<std::int64_t> depths = depths_with(draws, settings, depth, several);
  const std::vector<std::string> people = different(draws, std::ssize(names), person),  // the first live somewhere
      landmarks = different(draws, several, landmark);
  TaskText text;
  text.opening = "Read the following text with care. A question about its characters comes afterwards.\n";
  for (std::size_t i = 0; i < landmarks.size(); ++i) {
    text.needles.push_back({fmt::format("{} lives next to {}.", people[i], landmarks[i]), depths[i]});
  }
  const auto asked = static_cast<std::size_t>(std::ranges::find(depths, depth) - depths.begin());
  text.question = fmt::format("\nQuestion: Which character has visited {}?\nAnswer:",
                              std::ranges::find(places, landmarks[asked], &Place::landmark)->city);
  add_answers(draws, text, people, asked, asked + 1, /*all_right=*/false, /*wrong=*/0, number);
  return text;
}

}  // namespace

TaskText make_task(TaskKind kind, const TaskSettings& settings, std::int64_t length, std::int64_t depth,
                   std::int64_t sample) {
  std::uint64_t seed = settings.seed;
  for (const std::int64_t number : {static_cast<std::int64_t>(kind), length, depth, sample}) {
    seed = random_bits(seed, Purpose::synthetic_data, static_cast<std::uint64_t>(number));
  }
  Draws draws(seed);
  if (kind == TaskKind::variables) return make_variables(settings, draws, depth);
  if (kind == TaskKind::association) return make_association(settings, draws, depth);
  return make_needles(kind, settings, draws, depth);
}

double depth_share(const TaskSettings& settings, std::int64_t depth) {
  return settings.depths == 1 ? 0.5 : static_cast<double>(depth) / static_cast<double>(settings.depths - 1);
}

std::string prompt_of(const TaskText& text, const TaskSettings& settings, std::int64_t sentences, std::uint64_t draw) {
  std::string prompt = text.opening;
  std::size_t needle = 0;
  const auto add = [&](std::string_view sentence) {
    prompt += sentence;
    prompt += ' ';
  };
  for (std::int64_t i = 0; i <= sentences; ++i) {
    // A needle of depth d comes before sentence d * sentences.
    while (needle < text.needles.size() && static_cast<std::int64_t>(depth_share(settings, text.needles[needle].depth) *
                                                                     static_cast<double>(sentences)) <= i) {
      add(text.needles[needle++].sentence);
    }
    if (i < sentences) {
      add(haystack[random_below(draw, Purpose::synthetic_data, static_cast<std::uint64_t>(i), haystack.size())]);
    }
  }
  return prompt + text.question;
}

}  // namespace ringtrain
