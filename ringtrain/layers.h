// Component layers: the transformer's layers, its spec, and the store of a rank's weights and gradients.
#pragma once

#include "data/batch.h"
#include "framework/parameter_table.h"
#include "layers/activations.h"
#include "layers/block.h"
#include "layers/check_model.h"
#include "layers/linear.h"
#include "layers/model/inserted_layer.h"
#include "layers/model/model.h"
#include "layers/model/model_definition.h"
#include "layers/model/transformer.h"
#include "layers/model_parameters.h"
#include "layers/model_spec.h"
#include "layers/norm.h"
#include "parallel/parameter_store.h"
#include "ringtrain/ring.h"
