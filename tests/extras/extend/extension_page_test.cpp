// The page of an extension: verdicts and tables only compare equal targets.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "extras/extend/extension_page.h"
#include "tests/support/error_of.h"
#include "tests/support/folder_test.h"

namespace ringtrain::testing {
namespace {

class ExtensionPages : public FolderTest {
 protected:
  int documents = 20;
  /// Writes an evaluation of these documents, two targets each, whose nll is `nll` above that of the document.
  void write(const std::string& name, const std::string& hash, const std::map<std::int64_t, double>& nll) const {
    nlohmann::json json{
        {"target_hash", hash}, {"target_tokens", 2 * documents}, {"target_blocks", 20}, {"documents", 20}};
    std::ofstream lines(at(name + ".jsonl"));
    lines << "{\"written_by\":\"ringtrain evaluate --per-token\"}\n";
    for (const auto& [length, value] : nll) {
      json["results"].push_back({{"context_length", length}, {"nll", value}});
      json["results"].back()["by_position"] = {{{"last", 64}, {"nll", value}}, {{"last", 128}, {"nll", value}}};
      for (int document = 0; document < documents; ++document) {
        for (const double weight : {0.5, 1.5}) {
          lines << nlohmann::json({{"context_length", length},
                                   {"document", document},
                                   {"index", 7},
                                   {"weight", weight},
                                   {"nll", value + 0.1 * document}})
                << "\n";
        }
      }
    }
    std::ofstream(at(name + ".json")) << json;
  }

  void write_all(const std::string& hash_after) const {
    write("before-short", "brief", {{16, 2.0}});
    write("scaled-short", "brief", {{16, 2.1}});
    write("after-short", "brief", {{16, 2.05}});
    write("before", "whole", {{32, 2.2}, {64, 2.5}, {128, 4.0}});
    write("scaled", "whole", {{32, 2.2}, {64, 2.5}, {128, 2.6}});
    write("after", hash_after, {{32, 2.1}, {64, 2.4}, {128, 2.35}});
  }
};

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST_F(ExtensionPages, ComparesTheSameTargets) {
  write_all("whole");
  const ExtensionPage page = extension_page(folder, 64, 128, {{"", ""}, {"model", "a<b"}});
  EXPECT_EQ(page.text,
            "nll of the extended model at 128 tokens minus at 64: -0.0500 nats, must be at most +0.02, 95% CI "
            "[-0.0500, -0.0500]: holds\n"
            "nll at 16 tokens, extended model minus original: +0.0500 nats, must be at most +0.03, 95% CI [+0.0500, "
            "+0.0500]: DOES NOT HOLD\n"
            "nll at 128 tokens, extended model minus scaled but untrained: -0.2500 nats, must be at most +0.00, 95% CI "
            "[-0.2500, -0.2500]: holds\n");
  EXPECT_EQ(count(page.html, "hash is"), 2U);
  EXPECT_EQ(count(page.html, "<td>128</td><td>scaled</td><td>2.6000</td>"), 1U);
  EXPECT_NE(page.html.find("a&lt;b"), std::string::npos);
  EXPECT_EQ(count(page.html, "<polyline"), 3U);
  documents = 2;
  write_all("whole");
  const std::string few = extension_page(folder, 64, 128, {{"", ""}}).text;
  EXPECT_EQ(count(few, ": within the bound, but on 4 targets of 2 documents this says little\n"), 2U) << few;
  EXPECT_EQ(count(few, ": above the bound, but on 4 targets of 2 documents this says little\n"), 1U) << few;
}

TEST_F(ExtensionPages, KeepsOtherTargetsApart) {
  write_all("others");
  const ExtensionPage page = extension_page(folder, 64, 128, {{"", ""}});
  EXPECT_EQ(count(page.html, "hash is"), 3U);
  EXPECT_NE(page.text.find("extended model minus scaled but untrained: not compared"), std::string::npos) << page.text;
  EXPECT_NE(page.text.find("at 128 tokens minus at 64: -0.0500"), std::string::npos) << page.text;
}

TEST_F(ExtensionPages, RefusesAnotherForm) {
  write_all("whole");
  std::ofstream(at("after.jsonl")) << "head\n{\"context_length\": 32}\n";
  expect_error(ExitCode::usage, "do not have the form", [&] { extension_page(folder, 64, 128, {{"", ""}}); });
}

}  // namespace
}  // namespace ringtrain::testing
