// Checks the properties of the recall corpus: what is unpredictable, what is recalled, how far back, and the printed
// floors, by comparing it with an ideal reader that knows only the tokens of its context.
#include "data/preparation/recall.h"

#include <cmath>
#include <map>
#include <set>

#include "data/loader.h"
#include "tests/data/data_fixture.h"
#include "tests/support/hdf5_of_library.h"

namespace ringtrain {
namespace {

class RecallTest : public DataTest {
 protected:
  static constexpr std::int64_t documents = 20, length = 512, pairs = 10;
  RecallSummary make(const std::string& name, std::uint64_t seed = 3, double fraction = 0.25,
                     std::int64_t of_length = length) {
    return prepare_recall({documents, of_length, pairs, {at(name), fraction, seed}}, nullptr);
  }
  /// Returns the nll that an ideal reader assigns to token `at` when it sees tokens [from, at): values of a key that it
  /// has seen are repeated, others are uniform. It infers the pairing only from the tokens.
  static double ideal_nll(const std::vector<std::int32_t>& tokens, std::size_t from, std::size_t at) {
    const std::int32_t key = tokens[at - 1];
    EXPECT_LT(key, recall_keys);
    for (std::size_t i = from; i < at; ++i) {
      if (tokens[i] >= recall_keys + 8 * key && tokens[i] < recall_keys + 8 * key + 8) {
        EXPECT_EQ(tokens[i], tokens[at]);
        return 0;
      }
    }
    return std::log(8.0);
  }
};

TEST_F(RecallTest, EveryDocumentIsAsDescribed) {
  for (const std::int64_t one_length : {512, 513, 4096}) {
    std::set<std::vector<std::int32_t>> different;
    for (std::int64_t index = 0; index < 10; ++index) {
      const RecallDocument document = make_recall_document(3, index, one_length, pairs);
      different.insert(document.tokens);
      ASSERT_EQ(document.tokens.size(), static_cast<std::size_t>(one_length - 1));
      const std::size_t first = one_length % 2 == 0 ? 1 : 0;
      if (first == 1) {
        EXPECT_EQ(document.tokens[0], recall_filler);
      }
      std::map<std::int32_t, std::vector<std::int64_t>> places;
      std::map<std::int32_t, std::int32_t> value_of;
      for (std::size_t i = first; i < document.tokens.size(); i += 2) {
        const std::int32_t key = document.tokens[i], value = document.tokens[i + 1];
        ASSERT_TRUE(key >= 0 && key < recall_keys);
        ASSERT_EQ((value - recall_keys) / recall_values, key);
        ASSERT_EQ(value_of.try_emplace(key, value).first->second, value) << "one value a document";
        places[key].push_back(static_cast<std::int64_t>(i));
      }
      EXPECT_EQ(document.unpredictable, static_cast<std::int64_t>(places.size()));
      // The last pairs recall keys that occur once more, more than half a document earlier, but not in the first 16th.
      for (std::int64_t i = 0; i < pairs; ++i) {
        const std::int64_t recall = one_length - 1 - 2 * (pairs - i);
        const auto& where = places[document.tokens[recall]];
        ASSERT_EQ(where.size(), 2u);
        EXPECT_EQ(where[1], recall);
        EXPECT_EQ(document.distances[i], where[1] - where[0]);
        EXPECT_GE(where[1] - where[0], one_length / 2);
        EXPECT_GE(where[0], one_length / 16);
      }
    }
    EXPECT_EQ(different.size(), 10u);
  }
}

TEST_F(RecallTest, FloorsAreThoseOfAnIdealReader) {
  const RecallSummary summary = make("a.h5");
  const auto file = TokenFile::open(at("a.h5"));
  EXPECT_EQ(file->first_validation_document(), 15 * 17);
  EXPECT_EQ(summary.documents, 15 * 17 + 5);
  EXPECT_EQ(summary.tokens, 15 * 2 * length + 5 * length);
  EXPECT_EQ(file->token_count(), summary.tokens);
  EXPECT_EQ(summary.floor_nll, 0);
  EXPECT_DOUBLE_EQ(summary.chance_nll, std::log(8.0));
  double training = 0, training_weight = 0;
  std::int64_t recalls = 0;
  for (std::size_t d = 0; d + 1 < file->document_offsets().size(); ++d) {
    const std::int64_t begin = file->document_offsets()[d], end = file->document_offsets()[d + 1];
    EXPECT_EQ(end - begin, d < 15 * 17 && d % 17 < 16 ? length / 16 : length);
    EXPECT_EQ(summary.lengths[d], end - begin);
    std::vector<std::int32_t> tokens(end - begin);
    std::vector<float> weights(tokens.size());
    file->read(begin, tokens);
    file->read_weights(begin, weights);
    EXPECT_EQ(tokens.back(), 256);
    EXPECT_EQ(weights.back(), 0);
    for (std::size_t at = 0; at < tokens.size(); ++at) {
      if (weights[at] == 0) continue;
      if (d < 15 * 17) {
        training += ideal_nll(tokens, 0, at);
        training_weight += 1;
        continue;
      }
      ++recalls;
      EXPECT_EQ(ideal_nll(tokens, at - static_cast<std::size_t>(summary.longest_distance), at), 0);
      EXPECT_EQ(ideal_nll(tokens, at - static_cast<std::size_t>(summary.shortest_distance - 1), at), std::log(8.0));
    }
  }
  EXPECT_EQ(recalls, 5 * pairs);
  EXPECT_NEAR(summary.training_floor_nll, training / training_weight, 1e-12);
  EXPECT_GE(summary.shortest_distance, length / 2);
  EXPECT_LE(summary.longest_distance, 15 * length / 16);
  const testing::Hdf5OfLibrary reader(at("a.h5"));
  EXPECT_EQ(reader.number("recall_floor_nll"), 0);
  EXPECT_EQ(reader.number("recall_chance_nll"), std::log(8.0));
  EXPECT_EQ(reader.number("recall_training_floor_nll"), summary.training_floor_nll);
  EXPECT_EQ(reader.integer("recall_shortest_distance"), summary.shortest_distance);
}

TEST_F(RecallTest, ValuesAreEven) {
  // Far keys' values over many documents: each of the eight is equally frequent, for every key.
  std::vector<int> count(8, 0);
  int all = 0;
  for (std::int64_t index = 0; index < 400; ++index) {
    const RecallDocument document = make_recall_document(11, index, 512, pairs);
    for (std::size_t i = document.tokens.size() - 2 * pairs + 1; i < document.tokens.size(); i += 2, ++all) {
      ++count[(document.tokens[i] - recall_keys) % 8];
    }
  }
  // 7 degrees of freedom: a chi square above 24.3 has a probability of 0.001.
  double chi_square = 0;
  for (const int one : count) chi_square += (one - all / 8.0) * (one - all / 8.0) / (all / 8.0);
  EXPECT_LT(chi_square, 24.3);
}

TEST_F(RecallTest, SeedDecidesEverything) {
  const std::string hash = make("a.h5", 3).hash;
  EXPECT_EQ(make("b.h5", 3).hash, hash);
  EXPECT_NE(make("c.h5", 4).hash, hash);
}

TEST_F(RecallTest, WindowsOfADocumentsLengthAreWholeDocuments) {
  for (const std::int64_t one_length : {length, length + 7}) {
    make(fmt::format("{}.h5", one_length), 3, 0.25, one_length);
    Corpus corpus;
    corpus.files.push_back(TokenFile::open(at(fmt::format("{}.h5", one_length))));
    EXPECT_EQ(corpus.window_count(0, one_length, nullptr), 29);  // the 30th does not have its last label
    Allocator allocator(Device::cpu());
    Batch batch(allocator, 2, one_length, DType::float32);
    load_windows(batch, corpus, std::vector<Sample>{{0, 6, 0, 6}, {0, 7, 0, 7}}, one_length, Packing::documents, {});
    EXPECT_EQ(batch.extents[0][0][0].last_document, 15);
    EXPECT_EQ(batch.extents[0][1][0].last_document, 0);
    const std::int64_t of_short = one_length / 16, rest = one_length % 16;
    EXPECT_EQ(batch.weight_sum, 15 * ((of_short - 1) / 2) + (of_short + rest - 1) / 2 + (one_length - 1) / 2);
  }
}

TEST_F(RecallTest, NumbersThatDoNotFit) {
  const auto refusal = [&](std::int64_t n, std::int64_t l, std::int64_t p) {
    return error_of(ExitCode::usage, [&] { prepare_recall({n, l, p, {at("a.h5"), 0, 1}}, nullptr); });
  };
  EXPECT_TRUE(holds(refusal(0, 512, 4), "--documents 0"));
  EXPECT_TRUE(holds(refusal(1, 512, 17), "--pairs 17 is not between 1 and 16"));
  EXPECT_TRUE(holds(refusal(1, 512, 0), "--pairs 0"));
  EXPECT_TRUE(holds(refusal(1, 64, 8), "--length 64 is too short for --pairs 8; use at least --length 144"));
  for (std::int64_t p = 1; p <= 16; ++p) {  // the length that it names is enough
    const std::string name = "p" + std::to_string(p) + ".h5";
    EXPECT_NO_THROW(prepare_recall({2, 16 * p + 16, p, {at(name), 0.5, 1}}, nullptr));
  }
  EXPECT_FALSE(path_exists(at("a.h5")));
}

}  // namespace
}  // namespace ringtrain
