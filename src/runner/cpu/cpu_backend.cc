#include "runner/cpu/cpu_backend.h"
