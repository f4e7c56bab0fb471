#include "model/gguf.h"
