// The generated table behind ClassOf (unicode.h). Generator: unicode_table_gen.py.
#pragma once

#include <cstdint>
#include <span>

namespace berth {

// Runs of code points of one class, ascending, the first at 0: (first code point << 2) | CharClass.
extern const std::span<const std::uint32_t> kCharClassRuns;

}  // namespace berth
