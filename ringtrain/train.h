// Component train: configs, and the trainer for use in your own programs.
#pragma once

#include "framework/config/config.h"
#include "framework/config/read_config.h"
#include "layers/check_model.h"
#include "ringtrain/data.h"
#include "ringtrain/layers.h"
#include "train/checkpoint/checkpoint.h"
#include "train/engine/rank_state.h"
#include "train/evaluation/checkpoint_evaluation.h"
#include "train/generation/checkpoint_generation.h"
#include "train/models/model_source.h"
#include "train/rank_trainer.h"
#include "train/step/step_batches.h"
#include "train/trainer.h"
