#include "parallel/launch/launcher.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "parallel/fault_injection.h"
#include "parallel/forwarding_communicator.h"

#if RINGTRAIN_MPI
#include "parallel/mpi/mpi_communicator.h"
#endif

namespace ringtrain {

#if !RINGTRAIN_MPI
/// Replaces the class that a build without MPI does not have.
class MpiWorld {
 public:
  int rank() const { return 0; }
  int size() const { return 1; }
  std::vector<int> ranks_here() const { return {0}; }
  void set_timeout(double) {}
  void finish(int) {}
  ErrorReport report(const Error&) { return {}; }
};
static std::unique_ptr<Communicator> make_mpi_communicator(MpiWorld&) {
  fail(ExitCode::internal, "a build without MPI has no ranks that are processes");
}
#endif

namespace {

/// Returns how many processes an MPI launcher started, according to its environment variables (Open MPI, PMIx, or PMI
/// of other launchers); 0: there was none.
int processes_of_environment() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    if (const char* value = std::getenv(name)) return std::atoi(value);
  }
  return std::getenv("PMIX_RANK") ? 1 : 0;  // PMIx gives the number only on request, which MPI does
}

/// Throws if srun started several processes that cannot find each other: each would train the whole run by itself.
void refuse_lone_tasks() {
  const char* const tasks = std::getenv("SLURM_STEP_NUM_TASKS");
  if (!tasks || std::atoi(tasks) < 2) return;
  fail(ExitCode::usage,
       "srun started {} tasks that cannot find each other (no PMI or PMIx, or a build without MPI), so each would "
       "train the whole run: start them with srun --mpi=pmix, or one task and scripts/launch in it (docs/clusters.md); "
       "for {} separate runs, unset SLURM_STEP_NUM_TASKS",
       tasks, tasks);
}

/// Runs body as one rank, with the fault that the environment requests.
void run_rank(Communicator& world, const RankBody& body) {
  body(*with_fault_of_environment(borrowed(world)));
}

}  // namespace

Launcher::Launcher() = default;
Launcher::~Launcher() = default;
Launcher::Launcher(Launcher&&) noexcept = default;

bool Launcher::expects_processes() {
  return RINGTRAIN_MPI && processes_of_environment() > 0;
}

Launcher Launcher::from_environment() {
  Launcher launcher;
  const int processes = processes_of_environment();
#if RINGTRAIN_MPI
  if (processes == 0) refuse_lone_tasks();
  if (processes > 0) launcher.world_ = std::make_unique<MpiWorld>();
#else
  if (processes > 1) {
    ringtrain::fail(ExitCode::usage,
                    "an MPI launcher started {} processes, but this build has no MPI: install libopenmpi-dev and build "
                    "again, or start one process, whose ranks are threads",
                    processes);
  }
  refuse_lone_tasks();  // those of PMIx do not say how many they are
#endif
  return launcher;
}

std::vector<int> Launcher::ranks_of_process(int ranks) const {
  if (world_ && ranks == processes()) return {process()};
  std::vector<int> all(ranks);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::string Launcher::description() const {
  return world_ ? fmt::format("processes, {} of them", processes()) : "threads of one process";
}

void Launcher::check(const LaunchOptions& options) const {
  require_ranks(options);
  if (!world_) {
    if (options.backend == Backend::mpi) {
      ringtrain::fail(ExitCode::usage,
                      "mesh.backend mpi needs ranks that an MPI launcher started: scripts/launch -n {} -- ...; or use "
                      "threads",
                      options.ranks);
    }
    return;
  }
  if (options.backend == Backend::threads && processes() > 1) {
    ringtrain::fail(ExitCode::usage,
                    "mesh.backend threads puts all {} ranks into one process, but an MPI launcher started {} "
                    "processes; start one process, or use mpi (or auto)",
                    options.ranks, processes());
  }
  if (options.ranks != processes() && options.backend != Backend::threads) {
    ringtrain::fail(ExitCode::usage,
                    "the mesh has {} (mesh.data x mesh.sequence), but {} {} started (mesh.backend {}); start as many "
                    "processes as ranks, scripts/launch -n {} -- ..., or give another mesh with --mesh",
                    counted(options.ranks, "rank"), processes(), processes() == 1 ? "process was" : "processes were",
                    name_of(options.backend), options.ranks);
  }
}

int Launcher::process() const {
  return world_ ? world_->rank() : 0;
}

int Launcher::processes() const {
  return world_ ? world_->size() : 1;
}

std::vector<int> Launcher::ranks_here(int ranks) const {
  return world_ && ranks == processes() ? world_->ranks_here() : ranks_of_process(ranks);
}

void Launcher::launch(const LaunchOptions& options, const RankBody& body) {
  check(options);
  if (!world_ || options.backend == Backend::threads) {
    return launch_threads(
        options, [&](Communicator& world) { run_rank(world, body); }, &calls_);
  }
  // Ranks arrive here as soon as each has read its config and data, which may take one far longer than another. If a
  // rank dies meanwhile, this is noticed at once, for any timeout.
  constexpr double gathering_seconds = 600;
  world_->set_timeout(std::max(gathering_seconds, options.timeout_seconds));
  const std::unique_ptr<Communicator> communicator = make_mpi_communicator(*world_);
  communicator->barrier({"gathering of all ranks at the start"});
  world_->set_timeout(options.timeout_seconds);
  abort_on_error(*communicator, [&] { run_rank(*communicator, body); });
}

void Launcher::finish(int exit_code) {
  if (world_) world_->finish(exit_code);
}

ErrorReport Launcher::fail(const Error& error) {
  ErrorReport report = world_ ? world_->report(error) : ErrorReport{true, error.code(), error.what(), {}};
  if (!calls_.empty()) report.calls = calls_;
  if (report.code != ExitCode::rank) report.calls.clear();
  return report;
}

}  // namespace ringtrain
