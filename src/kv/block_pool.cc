#include "kv/block_pool.h"
