#include "train/evaluation/evaluation_targets.h"

#include <algorithm>
#include <set>

#include "data/loader.h"
#include "framework/error.h"
#include "framework/random.h"
#include "framework/storage/hash.h"

namespace ringtrain {

namespace {

constexpr std::uint64_t seed = 0;  // the same list of targets for all runs: see the header

/// The possible blocks of one document: they end at first_end + k * M, k in [0, count).
struct Candidates {
  std::int64_t document = 0;
  std::int64_t first_end = 0;
  std::int64_t count = 0;
};

Candidates candidates_of(std::int64_t document, std::int64_t begin, std::int64_t end, std::int64_t longest,
                         std::int64_t target_tokens) {
  const std::int64_t room = end - 1 - (begin + longest);  // e lies in [begin + longest, end - 1]
  if (room < 0) return {document, 0, 0};
  const auto slack = static_cast<std::uint64_t>(room % target_tokens);
  const auto shift = static_cast<std::int64_t>(
      random_below(seed, Purpose::evaluation_targets, static_cast<std::uint64_t>(document), slack + 1));
  return {document, begin + longest + shift, room / target_tokens + 1};
}

/// Returns whether a block ending at `end` has a token with a weight.
bool has_target(const TokenFile& file, std::int64_t end, std::int64_t target_tokens) {
  return window_has_target(file, {end - target_tokens, target_tokens}, Packing::concat);
}

std::string hash_of(const std::vector<TargetBlock>& blocks) {
  Hasher hasher;
  for (const TargetBlock& block : blocks) {
    const std::int64_t pair[2] = {block.document, block.end};
    hasher.update(pair, sizeof pair);
  }
  return hasher.digest();
}

/// Returns the first document to score. Sets the request's part to the one that contains it.
std::int64_t first_document(const TokenFile& file, EvaluationRequest& request) {
  const std::int64_t first = file.first_validation_document();
  const bool has_part = first + 1 < std::ssize(file.document_offsets());
  ensure(request.part != ScoredPart::validation || has_part, "the part that is asked for is there");
  request.part = request.part == ScoredPart::whole || !has_part ? ScoredPart::whole : ScoredPart::validation;
  return request.part == ScoredPart::whole ? 0 : first;
}

/// Returns a word for messages about documents of the scored part.
const char* part_word(const EvaluationRequest& request) {
  return request.part == ScoredPart::whole ? "" : "validation ";
}

/// Adds whole documents that have a target: all of the part, in their order, or the requested number of short ones, in
/// a permuted order.
void add_documents(const TokenFile& file, EvaluationTargets& targets) {
  const auto offsets = file.document_offsets();
  EvaluationRequest& request = targets.request;
  const std::int64_t longest = request.short_documents ? request.context_lengths.front() : INT64_MAX;
  const std::int64_t most = request.short_documents ? request.target_blocks : INT64_MAX;
  const std::int64_t first = first_document(file, request);
  const auto documents = static_cast<std::uint64_t>(std::ssize(offsets) - 1 - first);
  const Permutation order(documents, seed, Purpose::evaluation_targets, 0);
  for (std::uint64_t i = 0; i < documents && std::ssize(targets.blocks) < most; ++i) {
    const std::int64_t document = first + static_cast<std::int64_t>(request.short_documents ? order(i) : i);
    const std::int64_t begin = offsets[static_cast<std::size_t>(document)];
    const std::int64_t last = offsets[static_cast<std::size_t>(document) + 1] - 1;
    if (last - begin >= longest || last == begin || !has_target(file, last, last - begin)) continue;
    targets.blocks.push_back({document, last});
  }
  targets.documents = std::ssize(targets.blocks);
  if (!targets.blocks.empty()) return;
  const std::string lengths = request.short_documents ? fmt::format("2 to {}", longest) : "2 or more";
  fail(ExitCode::data,
       "{}: nothing can be scored: no {}document of {} tokens has a second or later token whose weight is not 0",
       file.path(), part_word(request), lengths);
}

/// Returns the documents that are long enough for the longest context, and records their number in the targets.
std::vector<Candidates> eligible_documents(const TokenFile& file, EvaluationTargets& targets) {
  const auto offsets = file.document_offsets();
  EvaluationRequest& request = targets.request;
  const std::int64_t shortest = request.context_lengths.front(), longest = request.context_lengths.back();
  const std::int64_t M = request.target_tokens;
  std::vector<Candidates> eligible;
  std::int64_t longest_document = 0;
  for (std::int64_t document = first_document(file, request); document + 1 < std::ssize(offsets); ++document) {
    const auto d = static_cast<std::size_t>(document);
    longest_document = std::max(longest_document, offsets[d + 1] - offsets[d]);
    const Candidates candidates = candidates_of(document, offsets[d], offsets[d + 1], longest, M);
    if (candidates.count > 0) eligible.push_back(candidates);
    if (candidates_of(document, offsets[d], offsets[d + 1], shortest, M).count > 0) ++targets.long_enough_for_shortest;
  }
  if (eligible.empty()) {
    fail(ExitCode::data,
         "{}: no {}document has more than {} tokens (the longest has {}), so nothing can be scored at a context length "
         "of {}; choose shorter context lengths, or a file with longer documents",
         file.path(), part_word(request), longest, longest_document, longest);
  }
  targets.long_enough = std::ssize(eligible);
  return eligible;
}

/// Returns blocks in rounds, one per document; the documents and each one's blocks are in permuted orders.
std::vector<TargetBlock> draw_blocks(const TokenFile& file, const EvaluationRequest& request,
                                     const std::vector<Candidates>& eligible) {
  const std::int64_t M = request.target_tokens;
  const Permutation order(eligible.size(), seed, Purpose::evaluation_targets, 0);
  std::vector<TargetBlock> blocks;
  bool any = true;
  for (std::int64_t round = 0; any && std::ssize(blocks) < request.target_blocks; ++round) {
    any = false;
    for (std::size_t i = 0; i < eligible.size() && std::ssize(blocks) < request.target_blocks; ++i) {
      const Candidates& candidates = eligible[order(i)];
      if (round >= candidates.count) continue;
      any = true;
      const Permutation ends(
          static_cast<std::uint64_t>(candidates.count),
          random_bits(seed, Purpose::evaluation_targets, static_cast<std::uint64_t>(candidates.document)),
          Purpose::evaluation_targets, 1);
      const std::int64_t end =
          candidates.first_end + M * static_cast<std::int64_t>(ends(static_cast<std::uint64_t>(round)));
      if (has_target(file, end, M)) blocks.push_back({candidates.document, end});
    }
  }
  return blocks;
}

}  // namespace

void check_context_lengths(const std::vector<std::int64_t>& lengths, const std::string& source) {
  if (lengths.empty()) fail(ExitCode::usage, "{}: no context length is given", source);
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] < 2)
      fail(ExitCode::usage, "{}: a context length is at least 2 tokens, but {} is given", source, lengths[i]);
    if (i > 0 && lengths[i] <= lengths[i - 1]) {
      fail(ExitCode::usage, "{}: context lengths must ascend, but {} follows {}", source, lengths[i], lengths[i - 1]);
    }
  }
}

void check_request(const EvaluationRequest& request, const std::string& source) {
  const auto& lengths = request.context_lengths;
  check_context_lengths(lengths, source);
  if (lengths.size() > 1000) fail(ExitCode::usage, "{}: {} lengths exceed the limit of 1000", source, lengths.size());
  if (request.stride != 0) {
    const bool apart = request.stride == lengths.front();  // windows that do not overlap: Hugging Face's quicker recipe
    if (request.stride < 1 || request.stride > lengths.front() || (apart && lengths.size() > 1)) {
      fail(ExitCode::usage,
           "{}: a stride of {} is not between 1 and {}, one less than the shortest context length: every token needs "
           "one before it in its window (with a single length, the stride may also be that length)",
           source, request.stride, lengths.front() - 1);
    }
    return;
  }
  if (request.target_tokens < 1 || request.target_tokens > lengths.front() / 2) {
    fail(ExitCode::usage,
         "{}: {} target tokens are not between 1 and half of the shortest context length, {}; every target must have "
         "at least half of it as context",
         source, request.target_tokens, lengths.front() / 2);
  }
  if (request.target_blocks < 1) fail(ExitCode::usage, "{}: the number of target blocks must be at least 1", source);
}

std::string take_begin_token(EvaluationRequest& request, const TokenFile& file) {
  const std::optional<std::int32_t> start = file.document_start();
  if (!start)
    return fmt::format("{} does not say which token begins a text, so windows begin with tokens of the text",
                       file.path());
  if (*start < 0) return "";
  request.begin_token = *start;
  return fmt::format("each window begins with token {}, as the documents of {} do", *start, file.path());
}

std::vector<TargetSpan> spans_of(const TokenFile& file, const EvaluationTargets& targets, std::int64_t context_length) {
  const EvaluationRequest& request = targets.request;
  std::vector<TargetSpan> spans;
  for (std::int64_t block = 0; block < std::ssize(targets.blocks); ++block) {
    const auto [document, last] = targets.blocks[block];
    if (request.stride == 0) {
      spans.push_back({block, last - context_length, context_length, request.target_tokens});
      continue;
    }
    const std::int64_t begin = file.document_offsets()[document], end = last + 1;
    std::int32_t first_token = -1;
    if (request.begin_token) file.read(begin, {&first_token, 1});
    const bool is_added = request.begin_token && first_token != *request.begin_token;  // before the first window
    std::int64_t scored = begin + 1;                                                   // targets before it are done
    for (std::int64_t from = begin; scored < end; from += request.stride) {
      const std::int64_t to = std::min(from + context_length, end), first = std::max(scored, from + 1);
      const std::int64_t added = is_added && from == begin;
      if (to > first) spans.push_back({block, from - added, to - 1 - from + added, to - first});
      scored = to;
    }
  }
  return spans;
}

EvaluationTargets choose_targets(const TokenFile& file, const EvaluationRequest& request) {
  EvaluationTargets targets;
  targets.request = request;
  if (request.stride > 0) {
    add_documents(file, targets);
  } else {
    targets.blocks = draw_blocks(file, request, eligible_documents(file, targets));
    std::set<std::int64_t> used;
    for (const TargetBlock& block : targets.blocks) used.insert(block.document);
    targets.documents = std::ssize(used);
  }
  if (targets.blocks.empty()) {
    fail(ExitCode::data, "{}: no block of {} tokens has a token whose weight is not 0; nothing can be scored",
         file.path(), request.target_tokens);
  }
  targets.hash = hash_of(targets.blocks);
  return targets;
}

}  // namespace ringtrain
