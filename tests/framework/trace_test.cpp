// The timeline: what is recorded, what is dropped, and a complete JSON file whatever happened before.
#include "framework/profile/trace.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "framework/error.h"
#include "framework/output/output_file.h"
#include "framework/profile/trace_events.h"
#include "framework/storage/files.h"
#include "tests/support/error_of.h"
#include "tests/support/folder_test.h"

namespace ringtrain::testing {
namespace {

class TraceTest : public FolderTest {
 protected:
  void write(const Trace& trace) const {
    const OutputRules rules({"a timeline", "--trace"}, OutputMark::begins(trace_file_head),
                            OutputInputs::none("a test"));
    OutputFile output(at("trace.json"), rules, ExitCode::usage);
    trace.write(output);
  }
  /// Returns the content of a trace's file.
  nlohmann::json written(const Trace& trace) const {
    write(trace);
    std::ifstream file(at("trace.json"));
    return nlohmann::json::parse(file);
  }
  static std::vector<nlohmann::json> spans_of(const nlohmann::json& file, const std::string& row) {
    std::int64_t process = -1, thread = -1;
    std::vector<nlohmann::json> spans;
    for (const auto& event : file.at("traceEvents")) {
      if (event.at("ph") == "M" && event.at("name") == "thread_name" && event.at("args").at("name") == row) {
        process = event.at("pid");
        thread = event.at("tid");
      }
      if (event.at("ph") == "X" && event.at("pid") == process && event.at("tid") == thread) spans.push_back(event);
    }
    return spans;
  }
};

TEST_F(TraceTest, SpansNestAndCarryTheirNumbers) {
  Trace trace(1, 2);
  TraceTrack* const track = &trace.rank(1).work;
  {
    const Span outer(track, "outer", {{"layer", 3}, {"absent", -1}});
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // what the span must show
    { const Span inner(track, "inner", {}, "its reason"); }
    { const Span inner(track, "second", {{"zero", 0}}); }
  }
  const auto file = written(trace);
  const auto spans = spans_of(file, "sequence rank 1");
  ASSERT_EQ(spans.size(), 3u);
  EXPECT_TRUE(spans_of(file, "sequence rank 0").empty());
  EXPECT_EQ(spans[0].at("name"), "outer");
  EXPECT_EQ(spans[0].at("args"), nlohmann::json::parse(R"({"layer":3})"));
  EXPECT_EQ(spans[1].at("args"), nlohmann::json::parse(R"({"for":"its reason"})"));
  EXPECT_EQ(spans[2].at("args"), nlohmann::json::parse(R"({"zero":0})"));
  const auto begin = [&](std::size_t i) { return spans[i].at("ts").get<double>(); };
  const auto end = [&](std::size_t i) { return begin(i) + spans[i].at("dur").get<double>(); };
  EXPECT_GE(begin(1), begin(0) + 2000.0);  // microseconds
  EXPECT_LE(end(1), begin(2));
  EXPECT_LE(end(2), end(0) + 1e-3);
}

TEST_F(TraceTest, EveryRankHasItsRows) {
  Trace trace(2, 3);
  for (int rank = 0; rank < 6; ++rank) {
    const Span span(&trace.rank(rank).work, "own", {{"rank", rank}});
    trace.rank(rank).communication.end(trace.rank(rank).communication.begin("sent", nullptr, {{"rank", rank}}));
  }
  std::map<std::int64_t, std::string> processes;
  std::map<std::pair<std::int64_t, std::int64_t>, std::string> rows;
  const auto file = written(trace);
  for (const auto& event : file.at("traceEvents")) {
    if (event.at("name") == "process_name") processes[event.at("pid")] = event.at("args").at("name");
    if (event.at("name") == "thread_name") rows[{event.at("pid"), event.at("tid")}] = event.at("args").at("name");
  }
  EXPECT_EQ(processes, (std::map<std::int64_t, std::string>{{1, "data rank 0"}, {2, "data rank 1"}}));
  ASSERT_EQ(rows.size(), 12u);
  std::set<std::int64_t> numbers;
  for (const auto& event : file.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    const int rank = event.at("args").at("rank");
    const std::string name =
        fmt::format("sequence rank {}{}", rank % 3, event.at("name") == "own" ? "" : " communication");
    EXPECT_EQ(event.at("pid"), rank / 3 + 1);
    EXPECT_EQ((rows.at({event.at("pid"), event.at("tid")})), name);
    numbers.insert(event.at("tid").get<std::int64_t>());
  }
  EXPECT_EQ(numbers.size(), 12u);  // no number is used for two rows, in any process
  EXPECT_EQ(numbers.count(0), 0u);
}

TEST_F(TraceTest, AFullTrackDropsCountsAndKeepsWhatIsAround) {
  Trace trace(1, 1, TraceTrack::block_spans + 10);
  TraceTrack& track = trace.rank(0).work;
  {
    const Span outer(&track, "outer");
    for (std::size_t i = 0; i < TraceTrack::block_spans + 30; ++i) const Span inner(&track, "inner");
  }
  EXPECT_EQ(track.size(), TraceTrack::block_spans + 10);
  EXPECT_EQ(track.dropped(), 21u);
  const auto file = written(trace);
  EXPECT_EQ(file.at("otherData").at("dropped_spans"), 21);
  const auto spans = spans_of(file, "sequence rank 0");
  ASSERT_EQ(spans.size(), TraceTrack::block_spans + 10);
  const double end = spans[0].at("ts").get<double>() + spans[0].at("dur").get<double>();
  EXPECT_EQ(spans[0].at("name"), "outer");
  EXPECT_GE(end + 1e-3, spans.back().at("ts").get<double>() + spans.back().at("dur").get<double>());
}

TEST_F(TraceTest, NothingIsRecordedWithoutATrackOrPaused) {
  { const Span nowhere(nullptr, "nothing"); }
  Trace trace(1, 1);
  TraceTrack& track = trace.rank(0).work;
  {
    const Span before(&track, "before");
    trace.rank(0).pause(true);
    const Span paused(&track, "paused");
    EXPECT_EQ(trace.rank(0).communication.begin("paused", nullptr, {}), nullptr);
  }
  trace.rank(0).pause(false);
  { const Span after(&track, "after"); }
  ASSERT_EQ(track.size(), 2u);
  EXPECT_STREQ(track[0].name, "before");
  EXPECT_NE(track[0].end, TraceEntry::still_open);
  EXPECT_STREQ(track[1].name, "after");
  EXPECT_EQ(trace.dropped(), 0u);
}

TEST_F(TraceTest, AMirrorSeesEverySpanAndADevicesRowsAreItsOwn) {
  struct Mirror final : SpanMirror {
    explicit Mirror(RankTrace& trace) : rank(trace) {}
    void begin(const char* name, const char* detail, std::initializer_list<TraceArgument> arguments) override {
      open.push_back(rank.device_work.add(name, detail, arguments));
      open.back()->begin = ++clock * 1000;
    }
    void end() override {
      open.back()->end = ++clock * 1000;
      open.pop_back();
    }
    TraceEntry* begin_transfer(const char* name, std::initializer_list<TraceArgument> arguments) override {
      return rank.device_communication.add(name, nullptr, arguments);
    }
    void end_transfer(TraceEntry* entry) override { entry->end = clock * 1000; }
    RankTrace& rank;
    std::vector<TraceEntry*> open;
    std::int64_t clock = 0;
  };
  Trace trace(1, 2);
  RankTrace& rank = trace.rank(0);
  EXPECT_EQ(rank.begin_transfer("nowhere", {}), nullptr);
  Mirror mirror(rank);
  rank.work.mirror(&mirror);
  {
    const Span outer(&rank.work, "outer");
    const Span inner(&rank.work, "inner", {{"hop", 2}}, "reason");
  }
  TraceEntry* const later = rank.begin_transfer("later", {});
  TraceEntry* const sooner = rank.begin_transfer("sooner", {{"bytes", 7}});
  rank.begin_transfer("unknown", {});  // its device never reported the time
  later->begin = 3000;
  later->end = 5000;
  sooner->begin = 2000;
  sooner->end = 4000;
  rank.work.mirror(nullptr);
  { const Span unseen(&rank.work, "unseen"); }
  const auto file = written(trace);
  const auto work = spans_of(file, "sequence rank 0 GPU");
  ASSERT_EQ(work.size(), 2u);
  EXPECT_EQ(work[1].at("name"), "inner");
  EXPECT_EQ(work[1].at("ts"), 2.0);
  EXPECT_EQ(work[1].at("dur"), 1.0);
  EXPECT_EQ(work[1].at("args"), nlohmann::json::parse(R"({"for":"reason","hop":2})"));
  EXPECT_EQ(work[0].at("dur"), 3.0);
  EXPECT_EQ(spans_of(file, "sequence rank 0 GPU communication").at(0).at("name"), "sooner");
  EXPECT_EQ(spans_of(file, "sequence rank 0 GPU communication 2").at(0).at("name"), "later");
  EXPECT_EQ(spans_of(file, "sequence rank 0").size(), 3u);
  for (const auto& event : file.at("traceEvents")) {
    if (event.at("name") == "thread_name" &&
        event.at("args").at("name").get<std::string>().starts_with("sequence rank 1")) {
      EXPECT_EQ(event.at("args").at("name"), "sequence rank 1");  // it has no GPU
    }
  }
}

TEST_F(TraceTest, ExchangesUnderWayTogetherHaveSeparateRows) {
  Trace trace(1, 1);
  TraceTrack& track = trace.rank(0).communication;
  auto* const first = track.begin("a", nullptr, {});
  auto* const second = track.begin("b", nullptr, {});
  track.end(first);
  auto* const third = track.begin("c", nullptr, {});  // in a's row
  track.end(second);
  track.end(third);
  track.begin("lost", nullptr, {});
  auto* const last = track.begin("d", nullptr, {});
  track.end(last);
  std::vector<const TraceEntry*> spans;
  for (std::size_t i = 0; i < track.size(); ++i) spans.push_back(&track[i]);
  EXPECT_EQ(rows_without_overlap(spans), (std::vector<int>{0, 1, 0, 0, 1}));
  const auto file = written(trace);
  EXPECT_EQ(spans_of(file, "sequence rank 0 communication").size(), 3u);
  const auto more = spans_of(file, "sequence rank 0 communication 2");
  ASSERT_EQ(more.size(), 2u);
  // A span that never ended ends with the last one that did.
  const auto lost = spans_of(file, "sequence rank 0 communication").back();
  EXPECT_NEAR(lost.at("ts").get<double>() + lost.at("dur").get<double>(),
              more.back().at("ts").get<double>() + more.back().at("dur").get<double>(), 2e-3);
}

TEST_F(TraceTest, AnEarlierOneIsReplacedWholeAndNothingElse) {
  Trace trace(1, 1);
  EXPECT_TRUE(written(trace).is_object());
  { const Span more(&trace.rank(0).work, "more"); }
  EXPECT_EQ(spans_of(written(trace), "sequence rank 0").size(), 1u);
  EXPECT_EQ(list_directory(folder, ExitCode::data), std::vector<std::string>{"trace.json"});
  for (const std::string other : {"", "something else", R"({"displayTimeUnit":"ms","traceEvents":[]})"}) {
    std::ofstream(at("trace.json")) << other;
    expect_error(ExitCode::usage, "is not a timeline", [&] { write(trace); });
    std::ifstream file(at("trace.json"));
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), other);
  }
}

}  // namespace
}  // namespace ringtrain::testing
