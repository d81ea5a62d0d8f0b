// Component data: tokenizers, token files, and batches.
#pragma once

#include "data/batch.h"
#include "data/corpus.h"
#include "data/loader.h"
#include "data/sampler.h"
#include "data/token_file.h"
#include "data/token_file_writer.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokens_in_memory.h"
#include "data/vocabulary.h"
#include "framework/error.h"
