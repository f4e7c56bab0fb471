// GPT-2's byte alphabet: byte-level vocabularies spell each byte as one printable character, so that spellings are
// text. Printable bytes of Latin-1 are themselves; the other 68 are U+0100, U+0101, ... in order. Source:
// "bytes_to_unicode" of openai/gpt-2, src/encoder.py.
#pragma once

#include <string>
#include <string_view>

namespace berth {

char32_t SpellByte(unsigned char byte);

// The bytes that `spelling` stands for; `spelling` itself where a character of it is not in the alphabet (such tokens
// were added to the vocabulary as they are). REQUIRES: valid UTF-8.
std::string UnspellBytes(std::string_view spelling);

}  // namespace berth
