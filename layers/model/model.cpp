#include "layers/model/model.h"

#include "framework/error.h"
#include "layers/logits_pass.h"

namespace ringtrain {

LogitsPass Model::begin_logits(const Batch&) {
  fail(ExitCode::usage,
       "this model has no logits to read: its class has no begin_logits; leave out --against and --tasks");
}

void Model::prefill(const Batch&, KeyValueCache&) {
  fail(ExitCode::usage, "this model does not generate: its class has no prefill and decode");
}

TensorView Model::decode(const Batch&, KeyValueCache&, bool) {
  fail(ExitCode::usage, "this model does not generate: its class has no prefill and decode");
}

AttentionAudit& Model::audit() {
  fail(ExitCode::usage,
       "training.audit: this model has no attention that can be audited; set training.audit.interval to 0");
}

}  // namespace ringtrain
