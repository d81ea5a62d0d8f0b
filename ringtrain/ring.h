// Component ring: tensors, communicators, the ring, and attention over it. docs/library.md says which header is for
// what.
#pragma once

#include "framework/allocator.h"
#include "framework/checks/gradient_check.h"
#include "framework/checks/tensor_text.h"
#include "framework/const_tensor_view.h"
#include "framework/error.h"
#include "framework/sequence/mesh.h"
#include "framework/sequence/segments.h"
#include "framework/stream.h"
#include "framework/tensor.h"
#include "framework/thread_pool.h"
#include "kernels/attention.h"
#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "kernels/norm.h"
#include "kernels/rope.h"
#include "parallel/attention/attention_over_ring.h"
#include "parallel/collectives.h"
#include "parallel/communicator.h"
#include "parallel/launch/launcher.h"
#include "parallel/ring/ring.h"
