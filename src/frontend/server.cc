#include "frontend/server.h"
