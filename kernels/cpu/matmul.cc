#include "kernels/cpu/matmul.h"
