#include "tokenizer/stop_matcher.h"
