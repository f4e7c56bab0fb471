#include "runner/sampler.h"
