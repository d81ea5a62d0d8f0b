// Compares batches with a plain reference on the whole sequence: every layout, rings of 1 to 5, odd lengths, both
// packings, with weights. The reference shares only the file's content and shard_segments with the loader; the
// positions of shard_segments are checked to be a partition.
#include "data/loader.h"

#include <algorithm>

#include "framework/config/data_config.h"
#include "framework/storage/hash.h"
#include "tests/data/data_fixture.h"

namespace ringtrain {
namespace {

/// The expected values of each token of one whole sequence.
struct Reference {
  std::vector<std::int32_t> tokens, labels, positions, documents;
  std::vector<double> weights;
};

Reference reference(const Content& content, std::int64_t base, std::int64_t length, std::int64_t first_target,
                    bool documents) {
  const std::vector<std::int32_t> stream = content.stream();
  std::vector<std::int64_t> document_of_token, start_of_token;
  for (std::size_t d = 0; d < content.documents.size(); ++d) {
    const auto start = static_cast<std::int64_t>(document_of_token.size());
    for (std::size_t i = 0; i < content.documents[d].size(); ++i) {
      document_of_token.push_back(static_cast<std::int64_t>(d));
      start_of_token.push_back(start);
    }
  }
  Reference whole;
  for (std::int64_t i = 0; i < length; ++i) {
    const auto at = static_cast<std::size_t>(base + i);
    double weight = content.weights.empty() ? 1.0 : static_cast<double>(content.weights[at + 1]);
    if (i < first_target) weight = 0;
    if (documents && stream[at] == 256) weight = 0;
    whole.tokens.push_back(stream[at]);
    whole.labels.push_back(weight > 0 ? stream[at + 1] : -1);
    whole.weights.push_back(weight);
    const std::int64_t start = documents ? std::max(start_of_token[at], base) : base;
    whole.positions.push_back(static_cast<std::int32_t>(base + i - start));
    whole.documents.push_back(documents ? static_cast<std::int32_t>(document_of_token[at] - document_of_token[base])
                                        : 0);
  }
  return whole;
}

class LoaderTest : public DataTest {
 protected:
  Corpus corpus_of(const Content& content) {
    Corpus corpus;
    corpus.files.push_back(TokenFile::open(write("corpus" + std::to_string(files_++) + ".h5", content)));
    corpus.weights.push_back(1);
    return corpus;
  }

  /// Loads every rank of a ring and compares everything with the references, one per sequence.
  template <class Load>
  void check_ring(Layout layout, int ring, std::int64_t length, const std::vector<Reference>& wholes, bool documents,
                  DType dtype, Load&& load) {
    Allocator allocator(Device::cpu());
    const auto sequences = static_cast<std::int64_t>(wholes.size());
    std::vector<std::vector<int>> seen(wholes.size(), std::vector<int>(static_cast<std::size_t>(length), 0));
    double weight_sum = 0, expected_sum = 0;
    std::int64_t targets = 0, expected_targets = 0;
    for (const Reference& whole : wholes) {
      for (const double weight : whole.weights) expected_sum += weight;
      expected_targets += std::ranges::count_if(whole.labels, [](std::int32_t label) { return label >= 0; });
    }
    for (int rank = 0; rank < ring; ++rank) {
      Batch batch(allocator, sequences, length / ring + 1, dtype);
      load(batch, ShardSpec{layout, ring, rank});
      ASSERT_EQ(batch.B, sequences);
      ASSERT_EQ(batch.T, token_count(batch.segments));
      ASSERT_EQ(batch.has_documents, documents);
      ASSERT_EQ(batch.extents.size(), static_cast<std::size_t>(ring));
      ASSERT_EQ(batch.ring_segments[rank], batch.segments);
      for (std::int64_t b = 0; b < sequences; ++b) {
        const Reference& whole = wholes[b];
        for (std::int64_t t = 0; t < batch.T; ++t) {
          const std::int64_t at = b * batch.T + t;
          const auto p = static_cast<std::size_t>(position_of(batch.segments, t));
          ++seen[b][p];
          ASSERT_EQ(batch.tokens().as<std::int32_t>()[at], whole.tokens[p]) << p;
          ASSERT_EQ(batch.labels().as<std::int32_t>()[at], whole.labels[p]) << p;
          ASSERT_EQ(batch.positions().as<std::int32_t>()[at], whole.positions[p]) << p;
          ASSERT_EQ(batch.documents().as<std::int32_t>()[at], whole.documents[p]) << p;
          const double weight = dtype == DType::float64 ? batch.weights().as<double>()[at]
                                                        : static_cast<double>(batch.weights().as<float>()[at]);
          ASSERT_EQ(weight, whole.weights[p]) << p;
        }
        if (documents) {
          DocumentStarts starts{0};
          for (std::size_t i = 1; i < whole.documents.size(); ++i) {
            if (whole.documents[i] != whole.documents[i - 1]) starts.push_back(static_cast<std::int64_t>(i));
          }
          ASSERT_EQ(batch.document_starts.size(), static_cast<std::size_t>(sequences));
          ASSERT_EQ(batch.document_starts[b], starts);
        } else {
          ASSERT_TRUE(batch.document_starts.empty());
        }
        // The information of this rank about every rank must be true.
        for (int other = 0; other < ring; ++other) {
          const SegmentList segments = batch.ring_segments[other];
          const auto& extents = batch.extents[other][b];
          ASSERT_EQ(segments, shard_segments(layout, length, ring, other));
          ASSERT_EQ(extents.size(), segments.size());
          for (std::size_t s = 0; s < segments.size(); ++s) {
            ASSERT_EQ(extents[s].first_position, segments[s].start);
            ASSERT_EQ(extents[s].last_position, segments[s].last());
            ASSERT_EQ(extents[s].first_document, whole.documents[segments[s].start]);
            ASSERT_EQ(extents[s].last_document, whole.documents[segments[s].last()]);
          }
        }
      }
      weight_sum += batch.weight_sum;
      targets += batch.target_count;
    }
    for (const auto& counts : seen) ASSERT_EQ(std::ranges::count(counts, 1), length);
    EXPECT_DOUBLE_EQ(weight_sum, expected_sum);
    EXPECT_EQ(targets, expected_targets);
  }

  int files_ = 0;
};

TEST_F(LoaderTest, DocumentsByHand) {
  // Documents "ab." and "cde." (. is the end), windows of 3 tokens: a b . | c d e, then e's end is the last label.
  Content content;
  content.documents = {{'a', 'b', 256}, {'c', 'd', 'e', 256}};
  const Corpus corpus = corpus_of(content);
  std::int64_t dropped = -1;
  EXPECT_EQ(corpus.window_count(0, 3, &dropped), 2);
  EXPECT_EQ(dropped, 0);
  EXPECT_EQ(corpus.window_count(0, 4, &dropped), 1);
  EXPECT_EQ(dropped, 2);
  EXPECT_EQ(corpus.window_count(0, 6, nullptr), 1);
  expect_error(ExitCode::data, "has 7 tokens for training, and one window of training.seq_len 7 needs 8",
               [&] { corpus.window_count(0, 7, nullptr); });

  Allocator allocator(Device::cpu());
  Batch batch(allocator, 2, 3, DType::float32);
  const std::vector<Sample> samples{{0, 1, 0, 1}, {0, 0, 0, 0}};
  const auto values = [&](const TensorView& view) {
    return std::vector<std::int32_t>(view.as<std::int32_t>(), view.as<std::int32_t>() + 6);
  };
  using Values = std::vector<std::int32_t>;
  load_windows(batch, corpus, samples, 3, Packing::documents, {});
  EXPECT_EQ(values(batch.tokens()), (Values{'c', 'd', 'e', 'a', 'b', 256}));
  EXPECT_EQ(values(batch.labels()), (Values{'d', 'e', 256, 'b', 256, -1}));
  EXPECT_EQ(values(batch.positions()), (Values{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(values(batch.documents()), (Values{0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(batch.target_count, 5);
  load_windows(batch, corpus, samples, 3, Packing::concat, {});
  EXPECT_EQ(values(batch.labels()), (Values{'d', 'e', 256, 'b', 256, 'c'}));
  EXPECT_EQ(batch.weight_sum, 6);
  EXPECT_FALSE(batch.has_documents);

  Batch five(allocator, 1, 6, DType::float32);
  load_windows(five, corpus, std::vector<Sample>{{0, 0, 0, 0}}, 6, Packing::documents, {});
  EXPECT_EQ(values(five.labels()), (Values{'b', 256, -1, 'd', 'e', 256}));
  EXPECT_EQ(values(five.positions()), (Values{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(values(five.documents()), (Values{0, 0, 0, 1, 1, 1}));
}

TEST_F(LoaderTest, UnionOverRanksIsTheWholeSequence) {
  for (const bool weights : {false, true}) {
    const Content content = make_content({5, 1, 1, 40, 2, 113, 7, 90, 1, 260, 33}, weights);
    const Corpus corpus = corpus_of(content);
    for (const std::int64_t length : {1, 2, 3, 7, 64, 101}) {
      for (const bool documents : {true, false}) {
        const std::vector<Sample> samples{{0, 2, 0, 2}, {0, 0, 0, 0}, {0, 1, 0, 1}};
        std::vector<Reference> wholes;
        for (const Sample& sample : samples) {
          wholes.push_back(reference(content, sample.window * length, length, 0, documents));
        }
        for (const Layout layout : all_layouts) {
          for (int ring = 1; ring <= 5; ++ring) {
            SCOPED_TRACE(fmt::format("{} ring {} length {} documents {} weights {}", name_of(layout), ring, length,
                                     documents, weights));
            const DType dtype = ring % 2 ? DType::float64 : DType::float32;
            check_ring(layout, ring, length, wholes, documents, dtype, [&](Batch& batch, const ShardSpec& shard) {
              load_windows(batch, corpus, samples, length, documents ? Packing::documents : Packing::concat, shard);
            });
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

/// Windows of whole documents: the reference cuts the list of lengths, and pads each window with a separate document.
TEST_F(LoaderTest, ShortDocumentsAreKeptWholeAndLongerOnesByTheirRule) {
  const std::vector<std::int64_t> lengths{5, 1, 3, 9, 2, 25, 4, 4, 10, 1, 12, 11, 2, 34};
  constexpr std::int64_t length = 11;
  for (const auto& [longer, weights] : {std::pair{LongDocuments::cut, false},
                                        {LongDocuments::cut, true},
                                        {LongDocuments::truncate, true},
                                        {LongDocuments::drop, true}}) {
    const Content content = make_content(lengths, weights);
    Corpus corpus = corpus_of(content);
    corpus.longer = longer;
    corpus.cut_at_documents(length);
    std::vector<std::pair<std::int64_t, std::int64_t>> expected;  // greedily, using only the lengths
    std::int64_t at = 0, begin = 0;
    const auto close = [&](std::int64_t end) {
      if (end > begin) expected.emplace_back(begin, end);
    };
    for (const std::int64_t document : lengths) {
      if (at + document - begin > length) {
        close(at);
        begin = at;
      }
      at += document;
      if (document > length && longer != LongDocuments::cut) {
        if (longer == LongDocuments::truncate) close(begin + length);
        begin = at;
      }
      for (; at - begin > length; begin += length) close(begin + length);
    }
    close(at);
    ASSERT_EQ(corpus.window_count(0, length, nullptr), std::ssize(expected));
    std::vector<Sample> samples;
    std::vector<Reference> wholes;
    for (std::int64_t w = 0; w < std::ssize(expected); ++w) {
      const auto [from, to] = expected[static_cast<std::size_t>(w)];
      EXPECT_EQ(corpus.window(0, w, length).begin, from);
      EXPECT_EQ(corpus.window(0, w, length).tokens, to - from);
      samples.push_back({0, w, 0, w});
      Content extended = content;  // a label after the last token
      extended.documents.push_back({256, 256});
      if (weights) extended.weights.insert(extended.weights.end(), 2, 0.0f);
      Reference whole = reference(extended, from, to - from, 0, true);
      const std::int32_t filler = whole.documents.back() + 1;
      for (std::int32_t i = 0; i < length - (to - from); ++i) {
        whole.tokens.push_back(256);
        whole.labels.push_back(-1);
        whole.positions.push_back(i);
        whole.documents.push_back(filler);
        whole.weights.push_back(0);
      }
      EXPECT_EQ(window_has_target(*corpus.files[0], corpus.window(0, w, length), Packing::whole),
                std::ranges::any_of(whole.labels, [](std::int32_t label) { return label >= 0; }));
      wholes.push_back(std::move(whole));
    }
    for (const Layout layout : all_layouts) {
      for (int ring = 1; ring <= 4; ++ring) {
        SCOPED_TRACE(fmt::format("{} {} ring {} weights {}", name_in(long_documents_names, longer), name_of(layout),
                                 ring, weights));
        check_ring(layout, ring, length, wholes, true, DType::float32, [&](Batch& batch, const ShardSpec& shard) {
          load_windows(batch, corpus, samples, length, Packing::whole, shard);
        });
        if (HasFatalFailure()) return;
      }
    }
  }
}

/// Checkpoints of versions that cut every longer document have the hash of cut.
TEST_F(LoaderTest, TheHashHoldsTheRuleForLongDocuments) {
  EXPECT_EQ(corpus_hash({"ab", "cd"}, {1, 3}, LongDocuments::cut), hash_bytes("ab 0.25\ncd 0.75\n"));
  EXPECT_EQ(corpus_hash({"ab", "cd"}, {1, 3}, LongDocuments::drop), hash_bytes("ab 0.25\ncd 0.75\nlonger drop\n"));
  EXPECT_EQ(corpus_hash({"ab"}, {2}, LongDocuments::truncate), hash_bytes("ab 1\nlonger truncate\n"));
}

TEST_F(LoaderTest, SequencesLongerThanASlice) {
  const Content content = make_content({3000, 4096, 1, 20000, 13, 9000}, true);
  const Corpus corpus = corpus_of(content);
  const std::int64_t length = 17001;
  const std::vector<Sample> samples{{0, 1, 0, 1}, {0, 0, 0, 0}};
  for (const Layout layout : all_layouts) {
    for (const int ring : {1, 2, 3, 5}) {
      SCOPED_TRACE(fmt::format("{} ring {}", name_of(layout), ring));
      std::vector<Reference> wholes;
      for (const Sample& sample : samples) {
        wholes.push_back(reference(content, sample.window * length, length, 0, true));
      }
      check_ring(layout, ring, length, wholes, true, DType::float32, [&](Batch& batch, const ShardSpec& shard) {
        load_windows(batch, corpus, samples, length, Packing::documents, shard);
      });
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(LoaderTest, SpansScoreTheirLastPositions) {
  const Content content = make_content({400, 700}, true);
  const Corpus corpus = corpus_of(content);
  const std::vector<std::int64_t> begins{400, 17, 999};
  for (const std::int64_t length : {1, 33, 100}) {
    for (const std::int64_t targets : {std::int64_t{0}, std::int64_t{1}, length / 2, length}) {
      std::vector<Reference> wholes;
      for (const std::int64_t begin : begins) {
        wholes.push_back(reference(content, begin, length, length - targets, false));
      }
      for (const Layout layout : all_layouts) {
        for (const int ring : {1, 2, 4, 5}) {
          SCOPED_TRACE(fmt::format("{} ring {} length {} targets {}", name_of(layout), ring, length, targets));
          check_ring(layout, ring, length, wholes, false, DType::float64, [&](Batch& batch, const ShardSpec& shard) {
            load_spans(batch, *corpus.files[0], begins, length, targets, shard);
          });
          if (HasFatalFailure()) return;
        }
      }
    }
  }
  Allocator allocator(Device::cpu());
  Batch batch(allocator, 1, 200, DType::float32);
  EXPECT_ANY_THROW(load_spans(batch, *corpus.files[0], std::vector<std::int64_t>{1000}, 100, 1, {}));
}

TEST_F(LoaderTest, WindowsStayInTheTrainingPart) {
  Content content = make_content({50, 51, 30, 20});
  content.validation_documents = 2;
  const Corpus corpus = corpus_of(content);
  std::int64_t dropped = 0;
  EXPECT_EQ(corpus.window_count(0, 10, &dropped), 10);  // 101 tokens: the last label is the 101st
  EXPECT_EQ(dropped, 0);
  EXPECT_EQ(corpus.window_count(0, 51, &dropped), 1);
  EXPECT_EQ(dropped, 49);
  content.validation_documents = 4;
  const Corpus none = corpus_of(content);
  expect_error(ExitCode::data, "has 0 tokens for training", [&] { none.window_count(0, 1, nullptr); });
}

TEST_F(LoaderTest, LoadingAllocatesNoTensors) {
  const Corpus corpus = corpus_of(make_content({5000}));
  Allocator allocator(Device::cpu());
  Batch batch(allocator, 1, 1000, DType::float32);
  const std::int64_t before = allocator.allocation_count();
  for (std::int64_t window = 0; window < 4; ++window) {
    load_windows(batch, corpus, std::vector<Sample>{{0, window, 0, window}}, 1000, Packing::documents, {});
  }
  EXPECT_EQ(allocator.allocation_count(), before);
  EXPECT_ANY_THROW(load_windows(batch, corpus, std::vector<Sample>{{0, 0, 0, 0}}, 1001, Packing::documents, {}));
}

TEST_F(LoaderTest, BatchesBeforeDataArePlannedWithoutTouchingMemory) {
  Allocator plan(Device::cpu(), Allocator::Mode::plan);
  const Batch batch(plan, 4, std::int64_t{1} << 40, DType::bfloat16);
  EXPECT_EQ(batch.weights().dtype, DType::float32);
  EXPECT_EQ(plan.current().total, std::size_t{5 * 4 * 4} << 40);
}

TEST_F(LoaderTest, CorpusOpensChecksAndHashes) {
  const std::string a = write("a.h5", make_content({50})), b = write("b.h5", make_content({60}));
  Content large = make_content({9});
  large.vocab_size = 300;
  large.documents[0].back() = 299;
  const std::string c = write("c.h5", large);
  const auto hash = [&](std::vector<DataSource> train) {
    return open_corpus(DataConfig{std::move(train), "", Packing::documents}, 257).hash();
  };
  EXPECT_EQ(hash({{a, 1}, {b, 1}}), hash({{a, 3}, {b, 3}}));
  EXPECT_NE(hash({{a, 1}, {b, 1}}), hash({{a, 1}, {b, 2}}));
  EXPECT_NE(hash({{a, 1}, {b, 1}}), hash({{b, 1}, {a, 1}}));
  EXPECT_NE(hash({{a, 1}}), hash({{b, 1}}));
  const Corpus corpus = open_corpus(DataConfig{{{a, 1}}, b, Packing::documents}, 257);
  EXPECT_EQ(corpus.validation().path(), b);
  EXPECT_EQ(open_corpus(DataConfig{{{a, 1}}, "", Packing::documents}, 257).validation().path(), a);
  expect_error(ExitCode::data, "has token ids up to 299, but model.vocab_size is 257; set it to 300 or more", [&] {
    hash({{c, 1}});
  });
  expect_error(ExitCode::data, "c.h5", [&] { open_corpus(DataConfig{{{a, 1}}, c, Packing::documents}, 257); });
}

TEST_F(LoaderTest, AWindowWithoutATargetDiffersFromOneWithATarget) {
  Allocator allocator(Device::cpu());
  std::int64_t empty = 0, with_target = 0;
  for (const std::int64_t seq_len : {1, 2, 3, 7, 5000}) {
    for (const bool weights : {false, true}) {
      Content content = make_content({1, 1, 1, 3, 1, 1, 9, 2, 1, 1, 1, 1, 1, 40, 1, 12000, 1, 1, 3}, weights);
      for (std::size_t t = 0; t < content.weights.size(); ++t) {
        if (t % 17 < 14 || (t > 300 && t < 11000)) content.weights[t] = 0;
      }
      const Corpus corpus = corpus_of(content);
      for (const Packing packing : {Packing::documents, Packing::concat}) {
        Batch batch(allocator, 1, seq_len, DType::float32);
        for (std::int64_t window = 0; window < corpus.window_count(0, seq_len, nullptr); ++window) {
          const Sample sample{0, window, 0, window};
          load_windows(batch, corpus, {&sample, 1}, seq_len, packing, {});
          EXPECT_EQ(window_has_target(*corpus.files[0], {window * seq_len, seq_len}, packing), batch.target_count > 0)
              << window << " of " << seq_len;
          ++(batch.target_count > 0 ? with_target : empty);
        }
      }
    }
  }
  EXPECT_GT(empty, 1000);
  EXPECT_GT(with_target, 1000);
}

}  // namespace
}  // namespace ringtrain
