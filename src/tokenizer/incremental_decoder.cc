#include "tokenizer/incremental_decoder.h"
