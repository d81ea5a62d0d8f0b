// Checkpoints under torture, in a short form in every test run; scripts/torture requests more through the environment.
// A save that ends at any system call, a run killed at any moment, a file truncated or with a flipped bit.
#include <signal.h>  // NOLINT(modernize-deprecated-headers): kill and sigaction are POSIX
#include <sys/mount.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <random>
#include <regex>
#include <thread>

#include "framework/config/read_config.h"
#include "framework/storage/files.h"
#include "framework/storage/hdf5_datasets.h"
#include "tests/support/paths.h"
#include "tests/train/child_process.h"
#include "tests/train/faulty_disk.h"
#include "tests/train/train_fixture.h"

namespace ringtrain::testing {
namespace {

/// Returns a number from the environment, or that of a short run.
int amount(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atoi(text) : otherwise;
}

class Torture : public TextTest {
 protected:
  Config config(const std::vector<std::string>& more) const {
    return tiny(data, joined({"training.global_batch_size=2", "training.dtype=float32"}, more));
  }
  void copy_run(const std::string& from, const std::string& to) const {
    fs::remove_all(at(to));
    fs::copy(at(from), at(to), fs::copy_options::recursive);
  }
  /// Returns the last step that a program's output announced as saved, 0 if none.
  static std::int64_t announced(const std::string& text) {
    static const std::regex pattern("saved \\S*step-([0-9]{8}) in ");
    std::int64_t last = 0;
    for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it) {
      last = std::stoll((*it)[1].str());
    }
    return last;
  }
  const std::vector<std::string> go_on{"--config", "run.yaml", "--output", "run", "--resume"};
};

/// A save that replaces the only checkpoint, on one rank and on two.
class EveryCall : public Torture, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    RINGTRAIN_NEEDS_FAULTY_DISK();
    Torture::SetUp();
    four = config({GetParam(), "training.steps=4", "checkpoint.interval=2", "checkpoint.keep=1"});
    write_config(four);
    run(four, "whole");
    run(four, "base", {}, 2);
    copy_run("base", "run");
    expect_end(run_on_faulty_disk({{"PATH", "/checkpoints"}, {"LOG", at("calls.txt")}}, "train", go_on, folder), 0);
    std::ifstream file(at("calls.txt"));
    // Replaces the unique parts of names, which differ between runs.
    const std::regex unique("\\.(partial|deleted)-[0-9]+-[0-9a-f]{8}");
    for (std::string line; std::getline(file, line);) {
      calls.push_back(std::regex_replace(line.substr(line.find(' ') + 1), unique, ".$1"));
    }
    ASSERT_GT(calls.size(), 15u);
  }
  /// After a fault: an old or the new checkpoint is complete, and the run continues to the same end.
  void expect_recovery(const ChildResult& result, const std::string& what) {
    const std::int64_t newest = saved_step("run");
    EXPECT_TRUE(newest == 2 || newest == 4) << what;
    EXPECT_GE(newest, announced(result.err)) << what;
    SCOPED_TRACE(what);
    run(four, "run", resumed());
    expect_same_bits("run", "whole");
    if (newest == 4) return;  // nothing remained to be done, and nothing was removed
    EXPECT_EQ(std::distance(fs::directory_iterator(at("run/checkpoints")), fs::directory_iterator{}), 1) << what;
  }
  std::size_t first(const std::string& call) const {
    for (std::size_t i = 0; i < calls.size(); ++i) {
      if (calls[i].starts_with(call.substr(0, call.find(' ') + 1)) &&
          calls[i].ends_with(call.substr(call.find(' ') + 1)))
        return i;
    }
    ADD_FAILURE() << call;
    return calls.size();
  }
  /// Returns the numbers of the calls to try: all, or in a short run the first two and the last of each kind and file.
  std::vector<std::size_t> chosen_calls() const {
    std::map<std::string, std::size_t> seen, total;
    for (const std::string& call : calls) ++total[call];
    std::vector<std::size_t> chosen;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const std::size_t times = ++seen[calls[i]];
      if (amount("RINGTRAIN_TORTURE", 0) || times <= 2 || times == total[calls[i]]) chosen.push_back(i + 1);
    }
    return chosen;
  }
  Config four;
  std::vector<std::string> calls;  // "CALL PATH" of the undisturbed save, in order
};

TEST_P(EveryCall, TheProcessMayEndThere) {
  for (const std::size_t n : chosen_calls()) {
    copy_run("base", "run");
    const ChildResult result =
        run_on_faulty_disk({{"PATH", "/checkpoints"}, {"AT", std::to_string(n)}}, "train", go_on, folder);
    EXPECT_EQ(result.code, 256 + SIGKILL) << n << ": " << result.err;
    expect_recovery(result, fmt::format("killed after call {}, {}", n, calls[n - 1]));
    if (HasFatalFailure()) return;
  }
}

TEST_P(EveryCall, EachMayFail) {
  const std::vector<std::string> errors =
      amount("RINGTRAIN_TORTURE", 0) ? std::vector<std::string>{"5", "28"} : std::vector<std::string>{"5"};
  for (const std::string& error : errors) {
    for (const std::size_t n : chosen_calls()) {
      copy_run("base", "run");
      const ChildResult result = run_on_faulty_disk(
          {{"PATH", "/checkpoints"}, {"AT", std::to_string(n)}, {"ERROR", error}}, "train", go_on, folder);
      // 2: the folder is checked before anything starts; 0: an old checkpoint that could not be deleted is reported.
      EXPECT_TRUE(result.code == 4 || result.code == 2 || result.code == 0) << n << calls[n - 1] << result.err;
      if (result.code == 0) {
        EXPECT_EQ(announced(result.err), 4) << n << calls[n - 1] << result.err;
      }
      expect_recovery(result, fmt::format("error {} of call {}, {}", error, n, calls[n - 1]));
    }
  }
}

TEST_P(EveryCall, IsInTheOrderThatAPowerFailureNeeds) {
  // Data reaches the disk before the name does, and the name before the old checkpoint is removed.
  const std::size_t renamed = first("rename step-00000004.partial"),
                    folder_synced = first("fsync step-00000004.partial"),
                    manifest_synced = first("fsync step-00000004.partial/manifest.json"),
                    old_renamed = first("rename step-00000002");
  std::size_t parent_synced = renamed;
  while (parent_synced < calls.size() &&
         !(calls[parent_synced].starts_with("fsync ") && calls[parent_synced].ends_with("/checkpoints"))) {
    ++parent_synced;
  }
  EXPECT_LT(manifest_synced, folder_synced);
  EXPECT_LT(folder_synced, renamed);
  EXPECT_LT(parent_synced, old_renamed);
  std::map<std::string, std::size_t> written, synced;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const std::string call = calls[i].substr(0, calls[i].find(' ')), path = calls[i].substr(calls[i].find(' ') + 1);
    if (path.find(".partial/") == std::string::npos || path.find(".writable-") != std::string::npos) continue;
    if (call == "write" || call.starts_with("pwrite") || call.starts_with("ftruncate")) written[path] = i;
    if (call == "fsync") synced[path] = i;
  }
  EXPECT_GE(written.size(), 3u);
  for (const auto& [path, at_call] : written) {
    ASSERT_TRUE(synced.contains(path)) << path;
    EXPECT_LT(at_call, synced[path]) << path;
    EXPECT_LT(synced[path], folder_synced) << path;
  }
}

INSTANTIATE_TEST_SUITE_P(OfASave, EveryCall, ::testing::Values("mesh.data=1", "mesh.sequence=2"),
                         [](const auto& one) { return one.param[5] == 'd' ? "OnOneRank" : "OnTwoRanks"; });

/// Returns the processes that a process has started.
std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> children;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string stat = content_of(entry.path().string() + "/stat");
    const std::size_t end = stat.rfind(')');
    if (end == std::string::npos || end + 4 > stat.size()) continue;
    if (std::atol(stat.c_str() + stat.find(' ', end + 2)) == parent) children.push_back(std::atoi(name.c_str()));
  }
  return children;
}

class Killed : public Torture {
 protected:
  /// Kills runs on 2 ranks at random moments, `kills` times, and compares with the undisturbed run. start: begins or
  /// resumes the run; victim: the process to kill.
  void kill_often(int kills, double longest, const std::function<Child()>& start,
                  const std::function<pid_t(const Child&)>& victim) {
    const Config often = config({"mesh.data=2", "training.steps=240", "checkpoint.interval=3", "checkpoint.keep=2"});
    write_config(often);
    run(often, "whole");
    const auto expected = state(checkpoint("whole", 240));
    std::mt19937 random(static_cast<unsigned>(amount("RINGTRAIN_TORTURE_SEED", 1)));
    std::uniform_real_distribution<double> moment(0, longest);
    int done = 0, in_training = 0;
    std::int64_t promised = 0;
    while (done < kills) {
      Child child = start();
      std::this_thread::sleep_for(std::chrono::duration<double>(moment(random)));  // any moment will do
      if (const pid_t target = victim(child); target > 0) ::kill(target, SIGKILL);
      const ChildResult result = child.wait();
      promised = std::max(promised, announced(result.err));
      if (result.code != 0) {
        ++done;
        in_training += fs::exists(at("run/checkpoints")) ? 1 : 0;
        if (promised > 0) {
          ASSERT_GE(saved_step("run"), promised) << result.err;
        }
      } else {  // it completed
        ASSERT_EQ(state(checkpoint("run", 240)), expected);
        fs::remove_all(at("run"));
        promised = 0;
      }
    }
    const ChildResult result = run_child("train", go_on, folder);
    ASSERT_EQ(result.code, 0) << result.err;
    expect_same_bits("run", "whole");
    std::printf("%d kills, %d of them with checkpoints there\n", done, in_training);
  }
};

TEST_F(Killed, ThreadRanksAtRandomMoments) {
  kill_often(
      amount("RINGTRAIN_TORTURE_KILLS", 5), 0.6, [&] { return Child("train", go_on, folder); },
      [](const Child& child) { return child.id(); });
}

#ifdef MPIEXEC
TEST_F(Killed, OneOfTwoProcessesAtRandomMoments) {
  ::setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
  ::setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  const std::vector<std::string> two{"--oversubscribe", "--bind-to", "none", "-n", "2", binary_folder() + "/train"};
  int turn = 0;
  kill_often(
      amount("RINGTRAIN_TORTURE_MPI_KILLS", 1), 2.5, [&] { return Child(MPIEXEC, joined(two, go_on), folder); },
      [&](const Child& child) {
        const std::vector<pid_t> ranks = children_of(child.id());
        return ranks.empty() ? pid_t{0} : ranks[static_cast<std::size_t>(++turn) % ranks.size()];
      });
}
#endif

class Damage : public Torture {
 protected:
  void SetUp() override {
    Torture::SetUp();
    run(config({"mesh.data=2", "training.steps=4", "checkpoint.interval=2"}), "run");
    good = checkpoint("run", 4);
    for (const auto& entry : fs::directory_iterator(good)) files.push_back(entry.path().filename().string());
    ASSERT_EQ(files.size(), 6u);
  }
  /// Expects the checkpoint of step 4 to be refused because of this file, and that of step 2 to be used instead.
  void expect_found(const std::string& file, const std::string& what) {
    EXPECT_TRUE(holds(error_of(ExitCode::checkpoint, [&] { open_checkpoint(good); }), file)) << what;
    std::string warning;
    const auto newest =
        CheckpointFolder(at("run/checkpoints")).newest_intact([&](const std::string& line) { warning = line; });
    EXPECT_EQ(newest ? newest->path : "none", checkpoint("run", 2));
    EXPECT_TRUE(holds(warning, "trying the previous checkpoint"));
  }
  std::string good;
  std::vector<std::string> files;
};

TEST_F(Damage, CutAtEvery64thOfEachFile) {
  for (const std::string& file : files) {
    const std::string path = good + "/" + file, whole = content_of(path);
    for (std::size_t part = 0; part < 64; ++part) {
      fs::resize_file(path, whole.size() * part / 64);
      expect_found(file, fmt::format("{} cut to {}/64", file, part));
      std::ofstream(path, std::ios::binary) << whole;
    }
  }
  open_checkpoint(good);
}

TEST_F(Damage, RandomBitsTurned) {
  std::mt19937_64 random(static_cast<unsigned>(amount("RINGTRAIN_TORTURE_SEED", 1)));
  for (int i = 0; i < amount("RINGTRAIN_TORTURE_FLIPS", 2000); ++i) {
    const std::string file = files[random() % files.size()], path = good + "/" + file;
    const auto bit = static_cast<std::int64_t>(random() % (fs::file_size(path) * 8));
    flip_bit(path, bit / 8, bit % 8);
    expect_found(file, fmt::format("bit {} of {}", bit, file));
    flip_bit(path, bit / 8, bit % 8);
  }
  open_checkpoint(good);
}

TEST_F(Damage, AForgersListsAreRefusedOrHarmless) {
  // Flipped bits in a state file's list, and a manifest that fits: the hash does not help, so the reader must detect
  // it.
  std::mt19937_64 random(7);
  const std::string path = dataset_list_path(state_file(good, 0, 2));
  open_checkpoint(good);
  int refused = 0;
  for (int i = 0; i < amount("RINGTRAIN_TORTURE_FLIPS", 300); ++i) {
    const auto bit = static_cast<std::int64_t>(random() % (fs::file_size(path) * 8));
    flip_bit(path, bit / 8, bit % 8);
    seal_checkpoint(good);
    try {
      open_checkpoint(good);
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ExitCode::checkpoint) << error.what();
      ++refused;
    }
    flip_bit(path, bit / 8, bit % 8);
  }
  EXPECT_GT(refused, 10);
}

class FullDisk : public Torture {
 protected:
  void TearDown() override {
    ::umount2(at("disk").c_str(), MNT_DETACH);
    Torture::TearDown();
  }
};

TEST_F(FullDisk, OfATmpfs) {
  // A disk that is really full, in the middle of a save and of metrics: code 4, and the previous checkpoint verifies.
  if (!amount("RINGTRAIN_TORTURE_TMPFS", 0)) GTEST_SKIP() << "run by scripts/torture checkpoints, by root";
  const std::string disk = at("disk");
  fs::create_directory(disk);
  const Config often = config({"training.steps=200", "checkpoint.interval=5", "checkpoint.keep=50"});
  write_config(often);
  run(often, "whole");
  ASSERT_EQ(::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=1600k"), 0);
  for (const auto* policy : {"stop", "warn"}) {
    fs::remove_all(disk + "/run");
    const std::string output = disk + "/run";
    const std::vector<std::string> into{"--config", "run.yaml", "--output", output, "--set"};
    const ChildResult result =
        run_child("train", joined(into, {fmt::format("checkpoint.on_failure={}", policy)}), folder);
    expect_end(result, 4, {"No space left on device"});  // under warn: the last save
    EXPECT_EQ(bool(holds(result.err, "train 200/200")), std::string(policy) == "warn") << result.err;
    const Checkpoint newest = open_checkpoint(output);
    EXPECT_EQ(newest.manifest.step, announced(result.err));
    EXPECT_GT(newest.manifest.step, 0);
    // With space again, it continues to the same end.
    for (const std::int64_t step : CheckpointFolder(output + "/checkpoints").steps()) {
      if (step < newest.manifest.step) fs::remove_all(CheckpointFolder(output + "/checkpoints").complete(step));
    }
    expect_end(run_child("train", joined(into, {"checkpoint.interval=0", "--resume"}), folder), 0);
    EXPECT_EQ(state(output + "/checkpoints/step-00000200"), state(checkpoint("whole", 200)));
  }
}

}  // namespace
}  // namespace ringtrain::testing
