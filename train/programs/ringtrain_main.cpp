// ringtrain COMMAND ...: the one program. A link to it with a command's name (train, evaluate, ...) is that command.
// `plan`, `report`, and `launch` are separate programs, next to it in a build and in libexec in an installation: it
// becomes one of them, with its arguments, streams, signals, and exit code.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "framework/error.h"
#include "framework/standard_streams.h"
#include "framework/storage/files.h"
#include "framework/text/nearest_name.h"
#include "train/programs/commands.h"
#include "train/programs/program.h"
#include "train/programs/version.h"

using namespace ringtrain;

namespace {

namespace fs = std::filesystem;

struct Command {
  const char* name;
  const char* purpose;
  int (*run)(int argc, char** argv) = nullptr;                            // one of these two is set,
  int (*run_ranks)(int argc, char** argv, Launcher& launcher) = nullptr;  // unless the command is a separate program
  bool extra = false;                                                     // of the extras; a build may leave them out

  bool is_here() const { return run != nullptr || run_ranks != nullptr; }
};

const std::array commands{
    Command{"prepare", "make a token file from text, or a synthetic one", prepare_command},
    Command{"train", "train a model on a mesh of data x sequence ranks", nullptr, train_command},
    Command{"evaluate", "score a model at several context lengths, on the same targets", nullptr, evaluate_command},
    Command{"generate", "continue a text", nullptr, generate_command},
    Command{"export", "write a model as a Hugging Face folder", export_command},
    Command{"check", "compare a training step with a float64 reference", nullptr, check_command},
    Command{"plan", "predict the memory and time of a run", nullptr, nullptr, true},
    Command{"report", "write a page about one run or two", nullptr, nullptr, true},
    Command{"extend", "give a model a longer context, and show the result", extend_command, nullptr, true},
    Command{"launch", "start a program as MPI processes: ringtrain launch -n N -- train ..."},
};

const Command* find_command(const std::string& name) {
  const auto* const found = std::ranges::find(commands, name, &Command::name);
  return found == commands.end() ? nullptr : found;
}

std::string help() {
  std::string text = "ringtrain COMMAND [ARGUMENT]...\n\n";
  for (const Command& command : commands) {
    text += fmt::format("  {:15} {}{}\n", command.name, command.purpose, command.extra ? " (extra)" : "");
  }
  return text +
         "\nringtrain COMMAND --help lists the flags of a command; ringtrain --version describes this build.\n"
         "Exit codes: 0 done, 2 usage or config, 3 data, 4 checkpoint, 5 numeric, 6 a rank, 7 device, 8 ended unsaved "
         "by a second signal, 70 a bug in ringtrain, 130 and 143 stopped and saved by SIGINT or another signal.\n";
}

/// Returns the paths where a program may be, the likeliest first: in an installation, or in a build.
std::array<std::string, 3> places_of(const std::string& command) {
  std::error_code error;  // without /proc the paths are wrong, and nothing starts
  const fs::path here = fs::read_symlink("/proc/self/exe", error).parent_path();
  const auto path_in = [&](const fs::path& folder) { return (here / folder / command).lexically_normal().string(); };
  return {path_in(RINGTRAIN_LIBEXEC), path_in("."), path_in("../../../scripts")};
}

int answer(const std::string& word) {
  if (word == "--version") {
    print_result(version_text() + "\n");
  } else if (word == "--help" || word == "-h" || word == "help") {
    print_result(help());
  } else if (const Command* const asked = find_command(word)) {
    if (asked->extra) {
      fail(ExitCode::usage,
           "{} is one of the extras, which this build leaves out: cmake --preset full && cmake --build --preset full "
           "builds them",
           word);
    }
    const auto places = places_of(word);
    fail(ExitCode::usage, "cannot start {} as {} or {}: build it with cmake --build BUILD --target programs", word,
         places[0], places[1]);
  } else if (word.empty()) {
    fail(ExitCode::usage, "no command is given; see ringtrain --help");
  } else {
    std::vector<std::string> names;
    for (const Command& command : commands) names.emplace_back(command.name);
    const std::string nearest = nearest_name(word, names);
    fail(ExitCode::usage, "there is no command {}{}", word,
         nearest.empty() ? "; see ringtrain --help" : "; did you mean " + nearest + "?");
  }
  return 0;
}

}  // namespace

int ringtrain::run_command(const char* name, int argc, char** argv) {
  const Command& command = *find_command(name);
  if (command.run != nullptr) return run_program(name, [&] { return command.run(argc, argv); });
  const OnSignal on_signal = command.run_ranks == train_command ? OnSignal::save : OnSignal::end;
  const auto body = [&](Launcher& launcher) { return command.run_ranks(argc, argv, launcher); };
  return run_rank_program(name, body, on_signal);
}

int main(int argc, char** argv) {
  if (const Command* const command = find_command(file_name(argv[0])); command != nullptr && command->is_here()) {
    return run_command(command->name, argc, argv);
  }
  const std::string word = argc > 1 ? argv[1] : "";
  if (const Command* const command = find_command(word)) {
    if (command->is_here()) return run_command(command->name, argc - 1, argv + 1);
    // Becomes the command's program, if it can. Do no setup before this: the program does its own.
    for (const std::string& path : places_of(word)) ::execv(path.c_str(), argv + 1);
  }
  return run_program("ringtrain", [&] { return answer(word); });
}
