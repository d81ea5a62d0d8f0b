#include "train/trace_file.h"

#include <charconv>
#include <filesystem>
#include <utility>
#include <vector>

#include "framework/error.h"
#include "train/run/run_folder.h"

namespace ringtrain {

std::string trace_path(const TraceRequest& request, const Launcher& launcher) {
  if (request.path.empty() || !launcher.ranks_are_processes()) return request.path;
  std::filesystem::path own(request.path);
  own.replace_extension(fmt::format(".rank{}{}", launcher.process(), own.extension().string()));
  return own.string();
}

OutputRules trace_rules(const TraceRequest& request) {
  const auto inputs = [inputs = request.inputs] {
    std::vector<std::string> files;
    for (const std::string& input : inputs) {
      const std::vector<std::string> read = files_of_model(input);
      files.insert(files.end(), read.begin(), read.end());
    }
    return files;
  };
  return {{"a timeline of ringtrain", "--trace"},
          Trace::mark(),
          OutputInputs::of(inputs),
          request.overwrite ? Overwrite::yes : Overwrite::no};
}

void read_trace_steps(const std::string& text, TraceRequest& request) {
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, request.first_step);
  bool whole = first.ec == std::errc() && first.ptr != end && *first.ptr == ':';
  if (whole) {
    const auto last = std::from_chars(first.ptr + 1, end, request.last_step);
    whole = last.ec == std::errc() && last.ptr == end;
  }
  if (!whole || request.first_step < 1 || request.last_step < request.first_step) {
    fail(ExitCode::usage, "--trace-steps {}: must be A:B with 1 <= A <= B, as 3:5 for the steps 3, 4 and 5", text);
  }
  if (request.path.empty()) fail(ExitCode::usage, "--trace-steps {}: needs --trace FILE.json", text);
}

TraceFile::TraceFile(const Run& run, const Launcher& launcher, Log log) : log_(std::move(log)) {
  if (run.trace.path.empty()) return;
  const std::string path = trace_path(run.trace, launcher);
  make_directories(parent_directory(path), ExitCode::usage);
  file_.emplace(path, trace_rules(run.trace), ExitCode::usage);
  trace_ = std::make_unique<Trace>(static_cast<int>(run.config.mesh.data), static_cast<int>(run.config.mesh.sequence));
}

TraceFile::~TraceFile() {
  if (!trace_ || !file_) return;
  try {
    trace_->write(*file_);
    std::string dropped;
    if (const std::size_t count = trace_->dropped(); count > 0) {
      dropped = fmt::format("; {} spans were dropped because a rank keeps {} at most: choose steps with --trace-steps",
                            count, Trace::default_capacity);
    }
    log_(fmt::format("timeline in {}, to be opened in ui.perfetto.dev{}", file_->path(), dropped));
  } catch (const std::exception& error) {
    log_(fmt::format("the timeline is lost: {}", error.what()));
  }
}

}  // namespace ringtrain
