// Clocks that a kernel reads of itself: when a block loads, multiplies and stores each step (Figs.
// 3 and 4b, published.py).
//
// Template:  ON  false in all kernels that are measured: nothing is left of it then
#pragma once

enum Role { LOAD, MULTIPLY, STORE };

struct Span {
    long long begin, end;  // SM cycles; 0: not seen
};

template <bool ON>
struct Trace {
    static constexpr int BLOCKS = 8, ROLES = 3, GROUPS = 3, STEPS = 64;  // that are kept

    Span* spans;  // [BLOCKS][ROLES][GROUPS][STEPS], zeros at first

    __device__ __forceinline__ Span* span(Role role, int group, int step) const
    {
        const unsigned block = blockIdx.x + gridDim.x * blockIdx.y;
        if (block >= BLOCKS || step >= STEPS) return nullptr;
        return spans + ((block * ROLES + role) * GROUPS + group) * STEPS + step;
    }
    // By one thread each, which may be two threads.
    __device__ __forceinline__ void begin(Role role, int group, int step) const
    {
        if constexpr (ON)
            if (Span* s = span(role, group, step)) s->begin = clock64();
    }
    __device__ __forceinline__ void end(Role role, int group, int step) const
    {
        if constexpr (ON)
            if (Span* s = span(role, group, step)) s->end = clock64();
    }
};
