// Inputs and outputs of kernels differ in type: an input does not compile as an output of another call.
#include <gtest/gtest.h>

#include <tuple>
#include <type_traits>
#include <vector>

#include "framework/const_tensor_view.h"
#include "framework/error.h"
#include "framework/stream.h"
#include "kernels/activation.h"
#include "kernels/attention.h"
#include "kernels/attention_sinks.h"
#include "kernels/cross_entropy.h"
#include "kernels/decode_attention.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/matmul.h"
#include "kernels/norm.h"
#include "kernels/rope.h"

namespace ringtrain {
namespace {

using In = ConstTensorView;
using Out = TensorView;

static_assert(std::is_convertible_v<Out, In> && std::is_convertible_v<Tensor, In>, "everything may be read");
static_assert(!std::is_convertible_v<In, Out> && !std::is_constructible_v<Out, In>, "what is read is not written");
static_assert(std::is_same_v<decltype(In{}.as<float>()), const float*>);
static_assert(std::is_same_v<decltype(In{}.rows(0, 1)), In>);
static_assert(std::is_same_v<decltype(In{}.flat()), In>);
static_assert(std::is_same_v<decltype(In{}.prefix({1})), In>);
static_assert(std::is_same_v<decltype(In{}.reshape({1})), In>);

template <class... Arguments>
std::tuple<std::remove_cvref_t<Arguments>...> types_of(void (*)(Stream&, Arguments...));

/// Whether these are the types of a kernel's arguments after its stream, and before the caller's line if it has one.
template <auto kernel, class... Arguments>
constexpr bool takes = std::is_same_v<decltype(types_of(kernel)), std::tuple<Arguments...>> ||
                       std::is_same_v<decltype(types_of(kernel)), std::tuple<Arguments..., CallerLine>>;

static_assert(takes<copy, Out, In>);
static_assert(takes<convert, Out, In>);
static_assert(takes<add, Out, In>);
static_assert(takes<fill, Out, double>);
static_assert(takes<sum_of_squares, Out, In, bool>);
static_assert(takes<activation_forward, Activation, Out, In, In>);
static_assert(takes<activation_backward, Activation, Out, Out, In, In, In, Out>);
static_assert(takes<cross_entropy, Out, Out, In, In, double, bool, double>);
static_assert(takes<attention_finalize, AttentionState, Out, Out, In>);
static_assert(takes<attention_sinks_backward, Out, In, In, In>);
static_assert(takes<embedding_forward, Out, In, In, bool>);
static_assert(takes<embedding_backward, Out, In, In>);
static_assert(takes<linear_forward, Out, In, In, In, In>);
static_assert(takes<linear_backward_input, Out, In, In, bool>);
static_assert(takes<linear_backward_weight, Out, Out, In, In, bool>);
static_assert(takes<norm_forward, Out, Out, Out, In, In, In, double, double>);
static_assert(takes<norm_backward, Out, Out, Out, In, In, In, In, In, bool, double>);
static_assert(takes<rope_forward, Out, In>);
static_assert(takes<rope_backward, Out, In, In>);
static_assert(takes<attention_delta, Out, In, In>);
static_assert(takes<attention_backward, AttentionShape, In, In, In, In, In, In, AttentionTokens, AttentionTokens, Out,
                    Out, Out, Out, bool>);
static_assert(takes<decode_attention, AttentionShape, In, In, In, AttentionState, Out>);

TEST(InputTypes, AViewThatIsReadHasTheSamePartsAsOneThatIsWritten) {
  std::vector<double> values{0, 1, 2, 3, 4, 5};
  const TensorView out = host_view(values.data(), {3, 2});
  const ConstTensorView in = out;
  EXPECT_EQ(in.data, out.data);
  EXPECT_EQ(in.shape, out.shape);
  EXPECT_EQ(in.bytes(), out.bytes());
  EXPECT_EQ(in.rows(1, 3).as<double>(), out.rows(1, 3).as<double>());
  EXPECT_EQ(in.rows(1, 3).shape, (Shape{2, 2}));
  EXPECT_EQ(in.flat(2, 5).as<double>()[0], 2);
  EXPECT_EQ(in.prefix({2, 2}).numel(), 4);
  EXPECT_EQ(in.reshape({2, 3}).dim(1), 3);
  EXPECT_ANY_THROW(static_cast<void>(in.as<float>())) << "it has its dtype, too";
  EXPECT_TRUE(ConstTensorView{}.empty());
}

}  // namespace
}  // namespace ringtrain
