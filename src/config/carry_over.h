// A new policy in the place of a running one.
#pragma once

#include "berth/policy.h"

namespace berth {

// `next` with the indexes of `running`: a class or tenant keeps its place by its name, new ones come behind. A class
// that is gone stays as a removed one with nothing of its own; a tenant that is gone stays under the limits of the
// default tenant, as any that is not listed.
Policy CarryOver(const Policy& running, Policy next);

}  // namespace berth
