#include "train/trace_file.h"

#include <filesystem>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/profile/trace_events.h"
#include "framework/text/text_reader.h"
#include "parallel/clock_offset.h"
#include "parallel/collectives.h"
#include "parallel/rank_zero.h"
#include "parallel/shared_error.h"
#include "train/run/run_folder.h"

namespace ringtrain {

namespace {

/// Returns trace.rank0.json for trace.json: the file that process 0 of several writes if the run fails.
std::string path_of_process(const TraceRequest& request, int process) {
  std::filesystem::path path(request.path);
  path.replace_extension(fmt::format(".rank{}{}", process, path.extension().string()));
  return path.string();
}

/// Returns what a run's timeline may overwrite.
OutputRules trace_rules(const TraceRequest& request) {
  const auto inputs = [inputs = request.inputs] { return files_of_models(inputs); };
  return {{"a timeline of ringtrain", "--trace"}, OutputMark::begins(trace_file_head), OutputInputs::from(inputs)};
}

std::string lost_text(const Error& problem) {
  return fmt::format("the timeline was not written: {}", problem.what());
}

/// Runs body. Returns what it throws, of any type: some callers are in a destructor.
std::optional<Error> problem_of(const std::function<void()>& body) {
  try {
    return caught(body);
  } catch (const std::exception& error) {
    return Error(ExitCode::internal, error.what());
  }
}

constexpr CallSite gathering{"gathering the timeline"};

/// Collective. Passes the pieces of text that `rank` makes to take, on rank 0. make(give): calls give(piece) for each,
/// on that rank. All ranks take part in each piece, so that none waits longer than one piece takes.
void gather_text(Communicator& world, int rank, const std::function<void(const TraceEvents::Sink& give)>& make,
                 const TraceEvents::Sink& take) {
  const auto agree = [&](std::int64_t bytes) {
    all_reduce_max(world, {&bytes, 1}, gathering);
    return bytes;
  };
  if (world.rank() == rank) {
    make([&](std::string_view piece) {
      agree(std::ssize(piece));
      if (rank == 0) return take(piece);
      const auto* const bytes = reinterpret_cast<const std::uint8_t*>(piece.data());
      world.wait(world.exchange(host_view(bytes, {std::ssize(piece)}), 0, {}, no_peer, gathering));
    });
    agree(0);
    return;
  }
  std::string piece;
  while (const std::int64_t bytes = agree(0)) {
    if (world.rank() != 0) continue;
    piece.resize(static_cast<std::size_t>(bytes));
    auto* const data = reinterpret_cast<std::uint8_t*>(piece.data());
    world.wait(world.exchange({}, no_peer, host_view(data, {bytes}), rank, gathering));
    take(piece);
  }
}

}  // namespace

void check_trace(const TraceRequest& request, const Launcher& launcher) {
  if (request.path.empty()) return;
  if (launcher.is_rank_zero()) check_output(request.path, trace_rules(request), ExitCode::usage);
  if (launcher.processes() > 1) {
    check_output(path_of_process(request, launcher.process()), trace_rules(request), ExitCode::usage);
  }
}

void read_trace_steps(const std::string& text, TraceRequest& request) {
  const bool whole = take_pair(text, request.first_step, ':', request.last_step);
  if (!whole || request.first_step < 1 || request.last_step < request.first_step) {
    fail(ExitCode::usage, "--trace-steps {}: must be A:B with 1 <= A <= B, as 3:5 for the steps 3, 4 and 5", text);
  }
}

TraceFile::TraceFile(const Run& run, const Launcher& launcher, Log log)
    : request_(run.trace),
      process_(launcher.process()),
      processes_(launcher.processes()),
      sequence_(static_cast<int>(run.config.mesh.sequence)),
      log_(std::move(log)) {
  if (request_.path.empty()) return;
  if (process_ == 0) {
    make_directories(parent_directory(request_.path), ExitCode::usage);
    file_.emplace(request_.path, trace_rules(request_), ExitCode::usage);
  }
  trace_ = std::make_unique<Trace>(static_cast<int>(run.config.mesh.data), sequence_);
}

TraceFile::~TraceFile() {
  if (trace_) write_rest();
  if (problem_) log_(lost_text(*problem_));
}

void TraceFile::finish() {
  if (trace_) write_rest();
  if (const auto problem = std::exchange(problem_, {})) throw Error(problem->code(), lost_text(*problem));
}

void TraceFile::write_rest() {
  problem_ = problem_of([&] {
    if (of_processes()) return write_own();
    trace_->write(*file_);
    tell_written(file_->path(), trace_->dropped());
  });
  trace_.reset();
}

void TraceFile::begin(Communicator& world) {
  if (trace_ && of_processes()) start_ = read_clocks(world, [&] { return now(); });
}

void TraceFile::gather(Communicator& world) {
  if (!trace_ || !of_processes()) return;
  const ClockMapping clock(start_, read_clocks(world, [&] { return now(); }));
  const std::int64_t values[] = {clock.offset(), clock.error(), static_cast<std::int64_t>(trace_->dropped())};
  const std::vector<std::int64_t> all = all_gather(world, values, gathering);
  std::vector<TraceClock> clocks;
  std::size_t dropped = 0;
  for (int rank = 0; rank < world.size(); ++rank) {
    const std::int64_t* const of_rank = all.data() + std::size(values) * static_cast<std::size_t>(rank);
    clocks.push_back({rank, of_rank[0], of_rank[1]});
    dropped += static_cast<std::size_t>(of_rank[2]);
  }
  const auto unless_lost = [&](const std::function<void()>& write) {
    if (!problem_) problem_ = problem_of(write);
  };
  const auto take = [&](std::string_view piece) { unless_lost([&] { file_->file().write(piece); }); };
  if (process_ == 0) take(trace_file_head);
  for (int rank = 0; rank < world.size(); ++rank) {
    const auto make = [&](const TraceEvents::Sink& give) {
      TraceEvents events(give, rank == 0);
      events.add(trace_->rank(rank), {rank, sequence_}, clock);
      events.flush();
    };
    gather_text(world, rank, make, take);
  }
  run_on_rank_zero(world, [&] {
    take(trace_file_end(dropped, clocks));
    unless_lost([&] { file_->publish(); });
  });
  trace_.reset();
  if (file_ && !problem_) tell_written(file_->path(), dropped);
}

/// Writes what this process of several has recorded, converted to rank 0's clock as measured at the start.
void TraceFile::write_own() const {
  const RankTrace& recorded = trace_->rank(process_);
  if (recorded.work.size() + recorded.communication.size() == 0) return;  // the run failed before it began
  const std::string path = path_of_process(request_, process_);
  make_directories(parent_directory(path), ExitCode::usage);
  OutputFile output(path, trace_rules(request_), ExitCode::usage);
  const ClockMapping clock(start_);
  write_timeline([&](std::string_view piece) { output.file().write(piece); },
                 [&](TraceEvents& events) {
                   events.add(recorded, {process_, sequence_}, clock);
                 },
                 trace_->dropped(), {{process_, clock.offset(), clock.error()}});
  output.publish();
  tell_written(path + " (the run failed, so the other processes' timelines are next to it)", trace_->dropped());
}

void TraceFile::tell_written(const std::string& path, std::size_t dropped) const {
  std::string remark;
  if (dropped > 0) {
    remark = fmt::format("; {} spans were dropped because a rank keeps at most {}; choose steps with --trace-steps",
                         dropped, Trace::default_capacity);
  }
  log_(fmt::format("the timeline is in {}; open it in ui.perfetto.dev{}", path, remark));
}

}  // namespace ringtrain
