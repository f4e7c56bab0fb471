#include "model/model_config.h"
