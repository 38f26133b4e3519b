// For clang before programs of torch 1: std::vector without constexpr. In C++20 clang instantiates
// constexpr members where they are named, which torch does before the element's type is complete;
// GCC does so where they are needed.
#pragma once

#include <memory>
#include <string>

#undef _GLIBCXX20_CONSTEXPR
#define _GLIBCXX20_CONSTEXPR
#define __fill_a1 __fill_bits  // declared already, with constexpr
#include <bits/stl_vector.h>
// After it.
#include <bits/stl_bvector.h>
#include <bits/vector.tcc>
#undef __fill_a1
#undef _GLIBCXX20_CONSTEXPR
#define _GLIBCXX20_CONSTEXPR constexpr

// What was declared, by the name that the linker knows.
[[gnu::weak, gnu::used]] void ddp_fill_bits(
    std::_Bit_iterator first, std::_Bit_iterator last,
    const bool& value) asm("_ZSt9__fill_a1St13_Bit_iteratorS_RKb");
void ddp_fill_bits(std::_Bit_iterator first, std::_Bit_iterator last, const bool& value) {
    std::__fill_bits(first, last, value);
}
