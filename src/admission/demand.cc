#include "admission/demand.h"
