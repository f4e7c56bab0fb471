// Seeded random text in mixed scripts, heavy on what pre-tokenizers treat specially.
#pragma once

#include <functional>
#include <random>
#include <string>

namespace berth::test {

// A random Unicode scalar value of any plane.
char32_t RandomScalar(std::mt19937_64* random);

// Up to `max_characters`; only code points that `allowed` takes.
std::string RandomText(std::mt19937_64* random, int max_characters, const std::function<bool(char32_t)>& allowed);

// Uniform in [0, limit).
int Pick(std::mt19937_64* random, int limit);

}  // namespace berth::test
