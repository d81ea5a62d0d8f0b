// The command extend, killed at every part and called again: it continues at any part, takes no partial output for
// complete, and gives the bits of an undisturbed call. Changes in between are refused. A tiny model of bytes goes from
// 32 to 64 tokens, in a folder whose name YAML must quote.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <fstream>
#include <random>

#include "tests/train/child_process.h"
#include "tests/train/train_fixture.h"

namespace ringtrain::testing {
namespace {

using Words = std::vector<std::string>;

const Words parts{
    "Tokenizing: long",        "Tokenizing: held-out",     "Tokenizing: short",  "Evaluating: before-short",
    "Evaluating: before",      "Evaluating: scaled-short", "Evaluating: scaled", "Training",
    "Evaluating: after-short", "Evaluating: after",        "Exporting"};

void write_texts(const std::string& path, unsigned seed, int documents) {
  std::mt19937 draw(seed);
  fs::create_directory(path);
  for (int document = 0; document < documents; ++document) {
    std::ofstream file(fmt::format("{}/{:02}.txt", path, document));
    for (int i = 0; i < 250; ++i) file << (draw() % 5 == 0 ? ' ' : static_cast<char>('a' + draw() % 8));
  }
}

class Extend : public FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    work = at("it's: #1 \"a\"");
    fs::create_directory(work);
    write_texts(in_work("long"), 1, 30);
    write_texts(in_work("book"), 2, 24);
    write_texts(in_work("short"), 3, 10);
    std::ofstream(in_work("base.yaml")) << "model: {hidden_size: 16, num_hidden_layers: 2, num_attention_heads: 2,\n"
                                           "  num_key_value_heads: 1, intermediate_size: 24, "
                                           "max_position_embeddings: 32}\n"
                                           "data: {train: base.h5, packing: concat}\nmesh: {threads_per_rank: 1}\n"
                                           "training: {seq_len: 32, global_batch_size: 1, steps: 1}\n"
                                           "optimizer: {lr: 1.0e-3}\n";
    expect_end(run_child("prepare", {"--input", "long", "--output", "base.h5"}, work), 0);
    expect_end(run_child("train", {"--config", "base.yaml", "--output", "base"}, work), 0);
    expect_end(run_child("export", {"--checkpoint", "base", "--output", "model"}, work), 0);
  }

  std::string in_work(const std::string& name) const { return work + "/" + name; }

  /// Returns the command line; `inputs` precedes the names of all inputs and of the output.
  static Words words(const std::string& output, const std::string& inputs = "", const std::string& steps = "2") {
    return {inputs + "model", inputs + "long",  "--to",       "64",  "--held-out",   inputs + "book",
            "--short",        inputs + "short", "--steps",    steps, "--half-steps", "1",
            "--lr",           "1e-3",           "--hardware", "cpu", "--output",     inputs + output};
  }
  ChildResult extend(const std::string& output) const { return run_child("extend", words(output), work); }

  /// Starts it, and sends a signal once it has printed the words, with an optional delay.
  ChildResult end_at(const std::string& said, int signal, const Words& arguments, int milliseconds = 0) const {
    fs::remove(in_work("stderr.txt"));
    Child child("extend", arguments, work);
    siginfo_t ended{};
    const auto is_there = [&] {
      ::waitid(P_PID, static_cast<id_t>(child.id()), &ended, WEXITED | WNOHANG | WNOWAIT);
      return ended.si_pid != 0 || content_of(in_work("stderr.txt")).find(said) != std::string::npos;
    };
    EXPECT_TRUE(wait_until(is_there)) << said;
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    ::kill(child.id(), signal);
    return child.wait();
  }

  /// Returns what users get from an extension: weights, scores without their first line, and the page's tables of nll.
  std::map<std::string, std::string> results(const std::string& output) const {
    std::map<std::string, std::string> found{{"model", content_of(in_work(output + "/model/model.safetensors"))}};
    for (const std::string name : {"before", "before-short", "scaled", "scaled-short", "after", "after-short"}) {
      const std::string scores = content_of(in_work(output + "/" + name + ".jsonl"));
      found[name] = scores.substr(std::min(scores.size(), scores.find('\n')));
    }
    const std::string page = content_of(in_work(output + "/index.html"));
    found["page"] = page.substr(std::min(page.size(), page.find("nll by position")));
    for (const auto& [name, content] : found) EXPECT_GT(content.size(), 500U) << name;
    return found;
  }

  std::string work;
};

TEST_F(Extend, KilledAtAnyPartContinuesToTheSameBits) {
  const ChildResult whole = extend("whole");
  expect_end(whole, 0, {"extend: Exporting"});
  EXPECT_TRUE(holds_all(whole.out, {"at 64 tokens minus at 32: ", "at 8 tokens, extended model minus original: "}));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const ChildResult killed = end_at("extend: " + parts[i] + "\n", SIGKILL, words("killed"), 10 * (i % 4));
    if (killed.code == 0) continue;  // the last one may complete
    EXPECT_EQ(killed.code, 256 + SIGKILL) << parts[i] << killed.err;
  }
  expect_end(extend("killed"), 0);
  EXPECT_EQ(results("killed"), results("whole"));
}

TEST_F(Extend, WhatIsDoneIsNotDoneAgainFromAnyFolder) {
  expect_end(extend("out"), 0);
  fs::create_directory(at("elsewhere"));
  const ChildResult again = run_child("extend", words("out", "../it's: #1 \"a\"/"), at("elsewhere"));
  expect_end(again, 0);
  for (const std::string& part : parts) EXPECT_EQ(again.err.find(part), std::string::npos) << again.err;
  fs::remove(in_work("out/before.json"));
  const ChildResult one = extend("out");
  expect_end(one, 0, {"extend: Evaluating: before\n"});
  EXPECT_EQ(one.err.find("Training"), std::string::npos) << one.err;
  // Of the scaling, a second extension changes only the factor.
  const Words further{"out/model", "long", "--to", "128", "--hardware", "cpu", "--plan", "--output", "further"};
  expect_end(run_child("extend", further, work), 0);
  EXPECT_NE(content_of(in_work("further/config.yaml")).find("rope_scaling: {factor: 4, "), std::string::npos);
  expect_end(run_child("extend", {"out/model", "long", "--to=1M", "--hardware=cpu", "--plan", "--output=x"}, work), 3);
}

TEST_F(Extend, RefusesATextThatIsTrainedOnAndHeldOut) {
  Words both = words("both");
  both[5] = "long/03.txt";
  expect_end(run_child("extend", both, work), 2, {"03.txt: --held-out names this text"});
}

TEST_F(Extend, RefusesWhatHasChangedBetweenTwoCalls) {
  EXPECT_EQ(end_at("extend: Training", SIGKILL, words("out")).code, 256 + SIGKILL);
  const auto expect_noticed = [&](const std::string& name, const std::string& content, const std::string& sentence) {
    const bool is_new = !fs::exists(in_work(name));
    const std::string before = content_of(in_work(name));
    const auto put = [&](const std::string& text) { std::ofstream(in_work(name), std::ios::binary) << text; };
    put(content.empty() ? before.substr(0, before.size() - 1) + "x" : content);
    const ChildResult refused = extend("out");
    expect_end(refused, 2, {in_work(name) + ": " + sentence});
    EXPECT_EQ(refused.out.find("against"), std::string::npos) << refused.out;
    if (is_new) {
      fs::remove(in_work(name));
    } else {
      put(before);
    }
  };
  expect_noticed("model/model.safetensors", "", "has changed since extend read it (part ");
  expect_noticed("long/03.txt", "", "has changed since extend read it (part long); undo this change");
  expect_noticed("long/99.txt", "a new text", "is a new input (part long); undo this change");
  expect_noticed("out/before.jsonl", "", "has changed since extend made it");
  expect_noticed("out/long.h5", "", "has changed since extend made it");
  fs::rename(in_work("book/05.txt"), in_work("kept"));
  expect_end(extend("out"), 2, {"book/05.txt: is no longer an input"});
  fs::rename(in_work("kept"), in_work("book/05.txt"));
  Words other = words("out");
  other[9] = "3";
  expect_end(run_child("extend", other, work), 2, {"was started with --steps '2', and now it is '3'"});
  expect_end(extend("out"), 0, {"extend: Training"});
}

TEST_F(Extend, TakesNoFolderOfOthers) {
  std::ofstream(in_work("precious")) << "17\n";
  for (const std::string name : {"notes", "linked", "damaged"}) fs::create_directory(in_work(name));
  std::ofstream(in_work("notes/mine.txt")) << "mine";
  fs::create_symlink("../precious", in_work("linked/lock"));
  std::ofstream(in_work("damaged/extend.json")) << "{";
  expect_end(extend("notes"), 2, {"holds mine.txt, which extend did not make"});
  expect_end(extend("linked"), 2, {"linked/lock"});
  EXPECT_EQ(content_of(in_work("precious")), "17\n");
  expect_end(extend("damaged"), 2, {"damaged/extend.json: is not a record of extend"});
  EXPECT_EQ(content_of(in_work("damaged/extend.json")), "{");
  expect_end(run_child("extend", {"long", "long", "--to", "64"}, work), 2, {"long: is not a Hugging Face folder"});
  expect_end(run_child("extend", {"model", "long", "--to", "64", "--from", "64"}, work), 2,
             {"--to 64: must be more than the 64 tokens"});
  fs::copy(in_work("model"), in_work("scaled"));
  std::string config = content_of(in_work("scaled/config.json"));
  config.replace(config.find("\"default\""), 9, "\"linear\", \"factor\": 2.0");
  std::ofstream(in_work("scaled/config.json")) << config;
  expect_end(run_child("extend", {"scaled", "long", "--to", "64"}, work), 2,
             {"scaled scales its rotary positions by linear, which extend keeps"});
  Words none = words("out");
  none[3] = "8K";
  const ChildResult refused = run_child("extend", none, work);
  expect_end(refused, 3, {"short.h5 has ", " tokens for training, and one window of training.seq_len 4096 needs 4097"});
  EXPECT_EQ(refused.err.find("Evaluating"), std::string::npos) << refused.err;
}

TEST_F(Extend, SavesUponASignalAndKeepsOthersOut) {
  const ChildResult ended = end_at("\nsaved ", SIGINT, words("out", "", "5000"));
  expect_end(ended, 130,
             {"extend: train did not finish (see its message above); run the same command line to continue"});
  EXPECT_FALSE(fs::is_empty(in_work("out/run/checkpoints")));
  fs::remove(in_work("stderr.txt"));
  Child first("extend", words("out", "", "5000"), work);
  EXPECT_TRUE(wait_until([&] { return content_of(in_work("stderr.txt")).find("Training") != std::string::npos; }));
  fs::create_directory(at("elsewhere"));
  const ChildResult second = run_child("extend", words("out", "../it's: #1 \"a\"/", "5000"), at("elsewhere"));
  expect_end(second, 2, {"is in use by another extend: process " + std::to_string(first.id())});
  ::kill(first.id(), SIGKILL);
  first.wait();
}

}  // namespace
}  // namespace ringtrain::testing
