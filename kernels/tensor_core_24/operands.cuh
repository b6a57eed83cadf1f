// What every Hopper kernel of this system is given: tensor maps of its operands, and how L2 shall
// treat them.
#pragma once

#include "tma.cuh"

struct Operands {
    const TensorMap& a;  // compressed values, as the stages say; not looked at where A is packed
    const TensorMap&
        e;  // metadata, a row of words for every 64 rows of A; likewise where the pieces have it
    const TensorMap& b;
    const TensorMap& c;  // what is stored; not looked at where registers are
    int pieces =
        0;  // where A is packed and has a tensor map: pieces of 64 columns for each 64 rows
};

// How L2 shall treat A with its metadata, and B: what is kept, and the other one may go, or nothing
// is said.
struct Hints {
    bool given;
    Policy a, b;
    __device__ __forceinline__ explicit Hints(int kept)  // 0: neither, 1: A, 2: B, 3: both
        : given(kept != 0), a(kept & 1 ? keep() : let_go()), b(kept & 2 ? keep() : let_go())
    {
    }
};
