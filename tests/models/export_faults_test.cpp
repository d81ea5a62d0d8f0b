// The result of an export whose destination is not possible, that a signal interrupts, or that is killed: the whole
// model or nothing, and nothing permanent. Tested through the program.
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <set>

#include "framework/output/output_folder.h"
#include "framework/storage/files.h"
#include "tests/support/folder_test.h"
#include "tests/support/paths.h"
#include "tests/train/child_process.h"
#include "tests/train/faulty_disk.h"
#include "tests/train/train_fixture.h"

namespace ringtrain::testing {
namespace {

class ExportFaults : public FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    fs::copy(source_folder() + "/tests/models/folders/llama", at("model"));
  }
  ChildResult export_to(const std::string& output, const std::vector<std::string>& more = {},
                        const std::function<void()>& before_start = {}) const {
    std::vector<std::string> arguments{"--checkpoint", "model", "--output", output};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_child("export", arguments, folder, before_start);
  }
  /// Returns the names in the folder that begin with `out`.
  std::set<std::string> outputs() const {
    std::set<std::string> names;
    for (const std::string& name : list_directory(folder, ExitCode::usage)) {
      if (name.starts_with("out")) names.insert(name);
    }
    return names;
  }
  void expect_whole(const std::string& context) const {
    const std::vector<std::string> whole{"config.json", "generation_config.json", "model.safetensors"};
    EXPECT_EQ(list_directory(at("out"), ExitCode::usage), whole) << context;
    EXPECT_EQ(content_of(at("out/model.safetensors")), content_of(at("model/model.safetensors"))) << context;
  }
};

/// Returns a number from the environment, or that of a short run.
int amount(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atoi(text) : otherwise;
}

TEST_F(ExportFaults, ASignalAfterAnyCallLeavesTheWholeModelOrNothing) {
  RINGTRAIN_NEEDS_FAULTY_DISK();
  const auto without_cores = [] { limit(RLIMIT_CORE, 0); };
  {
    const FaultyDisk disk({{"PATH", "out.partial"}, {"LOG", at("calls")}});
    ASSERT_EQ(export_to("out").code, 0);
  }
  std::ifstream log(at("calls"));
  const auto calls = std::count(std::istreambuf_iterator<char>(log), {}, '\n');
  ASSERT_GT(calls, 10);
  std::vector<int> signals{SIGTERM, SIGKILL, SIGQUIT};
  if (amount("RINGTRAIN_TORTURE", 0) != 0) {
    for (const int signal : {SIGINT, SIGHUP, SIGPIPE, SIGXFSZ, SIGALRM, SIGUSR1, SIGUSR2, SIGXCPU, SIGPWR, SIGRTMIN}) {
      signals.push_back(signal);
    }
  }
  std::map<int, int> stopped;
  for (const int signal : signals) {
    const bool asks = std::set{SIGTERM, SIGHUP, SIGUSR1, SIGXCPU, SIGPWR}.contains(signal);
    const int ended = signal == SIGINT ? 130 : asks ? 143 : 256 + signal;
    for (long call = 1; call <= calls; ++call) {
      const std::string context = fmt::format("signal {} after call {} of {}", signal, call, calls);
      fs::remove_all(at("out"));
      ChildResult result;
      {
        const FaultyDisk disk(
            {{"PATH", "out.partial"}, {"AT", std::to_string(call)}, {"SIGNAL", std::to_string(signal)}});
        result = export_to("out", {}, without_cores);
      }
      if (signal == SIGKILL) {
        EXPECT_EQ(result.code, 256 + SIGKILL) << context;
        ++stopped[signal];
        const bool done = fs::exists(at("out"));
        EXPECT_EQ(export_to("out").code, done ? 2 : 0) << context;  // it removes the killed one's files
        EXPECT_EQ(outputs(), (std::set<std::string>{"out"})) << context;
        expect_whole(context);
      } else if (result.code == ended && !fs::exists(at("out"))) {
        ++stopped[signal];
        EXPECT_EQ(outputs(), (std::set<std::string>{})) << context;
      } else {
        EXPECT_TRUE(result.code == 0 || result.code == ended) << context << ": " << result.code << result.err;
        EXPECT_EQ(outputs(), (std::set<std::string>{"out"})) << context;
        expect_whole(context);
      }
    }
    if (signal != SIGPIPE && signal != SIGXFSZ) {  // errors of a call, which do not arrive by themselves
      EXPECT_GT(stopped[signal], calls / 2) << signal;
    }
  }
}

TEST_F(ExportFaults, OfTwoThatMakeOneFolderTheSecondIsRefused) {
  OutputFolder first(at("out"), ExitCode::usage);
  const ChildResult second = export_to("out");
  EXPECT_EQ(second.code, 2) << second.err;
  EXPECT_NE(second.err.find(fmt::format("process {} is writing it now", ::getpid())), std::string::npos) << second.err;
  std::ofstream(first.content() + "/mine") << "x";
  first.publish();
  EXPECT_EQ(outputs(), (std::set<std::string>{"out"}));
  EXPECT_TRUE(fs::exists(at("out/mine")));
}

TEST_F(ExportFaults, WhatOnlyLooksUnfinishedStays) {
  const std::vector<std::string> foreign{"out.partial-4999999-0123abcd", "out.partial-4999999-0123abce",
                                         "out.partial-4999999-0123abcf", "out.partial"};
  for (const std::string& name : foreign) fs::create_directories(at(name + "/content"));
  std::ofstream(at(foreign[0] + "/model.safetensors")) << "mine";  // without a mark
  std::ofstream(at(foreign[1] + "/lock")) << "mine";               // with other content
  fs::create_directories(at("elsewhere/content"));
  fs::copy(at(foreign[1] + "/lock"), at("elsewhere/lock"));
  fs::create_directory_symlink("elsewhere", at("out.partial-4999999-0123abc0"));
  const auto before = outputs();
  ASSERT_EQ(export_to("out/").code, 0);
  auto after = outputs();
  EXPECT_EQ(after.erase("out"), 1u);
  EXPECT_EQ(after, before);
  for (const std::string& name : foreign) EXPECT_TRUE(fs::exists(at(name + "/content"))) << name;
}

TEST_F(ExportFaults, AnOutputThatCannotBeIsRefusedBeforeTheModelIsRead) {
  std::ofstream(at("model/model.safetensors")) << "whoever reads this ends with 4";
  std::ofstream(at("file")) << "mine";
  for (const char* name : {"there", "run/checkpoints/step-00000001", "run/tokenizer", "model/sub"}) {
    fs::create_directories(at(name));
  }
  std::ofstream(at("run/metrics.jsonl")) << "";
  fs::create_symlink("nowhere", at("dangling"));
  fs::create_directory_symlink("model/sub", at("within"));
  const auto refused = [&](const std::string& output, const std::string& part) {
    const ChildResult result = export_to(output, {});
    EXPECT_EQ(result.code, 2) << output << ": " << result.err;
    EXPECT_NE(result.err.find(part), std::string::npos) << part << " is not in: " << result.err;
  };
  refused("", "is empty");
  for (const char* taken : {"there", "there/", "file", "dangling", ".", "/"}) refused(taken, "already exists");
  refused("file/out", "not a folder");
  refused("/proc/out", "cannot write into the folder /proc");
  for (const char* inside : {"model/out", "model/new/out", "model/sub/out", "within/out"}) {
    refused(inside, "which this export reads");
  }
  for (const char* inside : {"run/checkpoints/out", "run/checkpoints/step-00000001/out"}) {
    refused(inside, "is in the checkpoints of the run");
  }
  refused("run/tokenizer/out", "is in the tokenizer of the run");
  EXPECT_EQ(
      list_directory(at("model"), ExitCode::usage),
      (std::vector<std::string>{"config.json", "expected.json", "generation_config.json", "model.safetensors", "sub"}));
}

TEST_F(ExportFaults, WhatDoesNotFitIsRefusedBeforeTheWeightsAreRead) {
  const ChildResult limited = export_to("out", {}, [] { limit(RLIMIT_FSIZE, 4096); });
  EXPECT_EQ(limited.code, 2) << limited.err;
  EXPECT_NE(limited.err.find("ulimit -f allows 4096 per file"), std::string::npos) << limited.err;
  EXPECT_TRUE(outputs().empty());
  OutputFolder output(at("out"), ExitCode::usage);
  expect_error(ExitCode::usage, "it needs 4611686018427387904 bytes", [&] { output.require_room(1LL << 62, 1); });
}

}  // namespace
}  // namespace ringtrain::testing
