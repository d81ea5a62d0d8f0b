#include "train/trace_file.h"

#include <charconv>
#include <filesystem>
#include <utility>

#include "framework/error.h"

namespace ringtrain {

namespace {

std::string path_of(const std::string& path, const Launcher& launcher) {
  if (path.empty() || !launcher.ranks_are_processes()) return path;
  std::filesystem::path own(path);
  own.replace_extension(fmt::format(".rank{}{}", launcher.process(), own.extension().string()));
  return own.string();
}

}  // namespace

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

TraceFile::TraceFile(const Run& run, const Launcher& launcher, Note note)
    : path_(path_of(run.trace.path, launcher)), note_(std::move(note)) {
  if (path_.empty()) return;
  trace_ = std::make_unique<Trace>(static_cast<int>(run.config.mesh.data), static_cast<int>(run.config.mesh.sequence));
}

TraceFile::~TraceFile() {
  if (!trace_) return;
  try {
    trace_->write(path_);
    std::string dropped;
    if (const std::size_t count = trace_->dropped(); count > 0) {
      dropped = fmt::format("; {} spans were dropped because a rank keeps {} at most: choose steps with --trace-steps",
                            count, Trace::default_capacity);
    }
    note_(fmt::format("timeline in {}, to be opened in ui.perfetto.dev{}", path_, dropped));
  } catch (const std::exception& error) {
    note_(fmt::format("the timeline is lost: {}", error.what()));
  }
}

}  // namespace ringtrain
