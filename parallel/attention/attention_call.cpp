#include "parallel/attention/attention_call.h"

#include "framework/profile/trace.h"
#include "kernels/elementwise.h"

namespace ringtrain {

// Floating-point operations: two per pair, element of a head, and product. Forward has two products and backward five.

void AttentionCall::forward(const AttentionState& state, AttentionPhase result) const {
  const bool finalize = result.finalize;
  ring.forward(stream, pass, key_value, documents, [&](const RingBlock& block) {
    const Span span(stream.trace(), "attention kernel",
                    {{"pairs", block.pairs}, {"flops", 2 * 2 * block.pairs * shape.D * shape.H}});
    result.init = block.first;
    result.finalize = finalize && block.last;
    attention_forward(stream, shape, query, block.k, block.v, {segments, documents}, block.tokens, state, result,
                      workspace);
    if (watch) watch(block);
  });
}

void AttentionCall::backward(const AttentionGradients& gradients, const std::function<void()>& overlap) const {
  fill(stream, gradients.dq, 0.0);
  const auto visit = [&](const RingBlock& block) {
    if (block.pairs == 0) return;  // no query here sees this part
    const Span span(stream.trace(), "attention kernel",
                    {{"pairs", block.pairs}, {"flops", 2 * 5 * block.pairs * shape.D * shape.H}});
    AttentionShape of_block = shape;
    of_block.B = block.sequences;
    const auto part_of = [&](const ConstTensorView& x) { return block.sequences_of(x); };
    attention_backward(stream, of_block, part_of(query), block.k, block.v, part_of(gradients.dout),
                       part_of(gradients.lse), part_of(gradients.delta), {segments, part_of(documents)}, block.tokens,
                       block.sequences_of(gradients.dq), block.dk, block.dv, workspace, block.accumulate);
    if (watch) watch(block);
  };
  ring.backward(stream, pass, key_value, documents, gradients.dkv, visit, overlap);
}

}  // namespace ringtrain
