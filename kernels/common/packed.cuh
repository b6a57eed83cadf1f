// Packed<T, V>: V neighbouring columns of a row of B or C as they lie in memory, float32 or 16
// bits, that travel in one load or store of up to 16 bytes; products and sums of them are float32.
#pragma once

#include "half.cuh"
#include "vec.cuh"

constexpr Dtype FLOAT32 = TF32;  // exact on CUDA cores

// V columns of B as they lie, and as float32.
template <Dtype T, int V>
struct Packed {
    static constexpr int WORDS = T == FLOAT32 ? V : V / 2;
    vec<WORDS> at;
    static __device__ __forceinline__ Packed load(const void* p)
    {
        return {::load(static_cast<const vec<WORDS>*>(p))};
    }
    __device__ __forceinline__ void multiply(vec<V>& acc, float a) const
    {
        if constexpr (T == FLOAT32) fma(acc, a, at);
        else
#pragma unroll
            for (int w = 0; w < WORDS; ++w) {
                const float2 two = unpack<T>(__float_as_uint(at.at[w]));
                acc.at[2 * w] = fmaf(a, two.x, acc.at[2 * w]);
                acc.at[2 * w + 1] = fmaf(a, two.y, acc.at[2 * w + 1]);
            }
    }
    static __device__ __forceinline__ void store(void* to, const vec<V>& x)
    {
        if constexpr (T == FLOAT32) *static_cast<vec<V>*>(to) = x;
        else {
            vec<WORDS> y;
#pragma unroll
            for (int w = 0; w < WORDS; ++w)
                y.at[w] = __uint_as_float(pack<T>(x.at[2 * w], x.at[2 * w + 1]));
            *static_cast<vec<WORDS>*>(to) = y;
        }
    }
};

template <Dtype T>
struct Packed<T, 1> {  // of 16-bit types: half a word
    unsigned bits;
    static __device__ __forceinline__ Packed load(const void* p)
    {
        if constexpr (T == FLOAT32) return {__ldg(static_cast<const unsigned*>(p))};
        else return {__ldg(static_cast<const unsigned short*>(p))};
    }
    __device__ __forceinline__ void multiply(vec<1>& acc, float a) const
    {
        if constexpr (T == FLOAT32) acc.at[0] = fmaf(a, __uint_as_float(bits), acc.at[0]);
        else acc.at[0] = fmaf(a, unpack<T>(bits).x, acc.at[0]);
    }
    static __device__ __forceinline__ void store(void* to, const vec<1>& x)
    {
        if constexpr (T == FLOAT32) *static_cast<float*>(to) = x.at[0];
        else *static_cast<unsigned short*>(to) = (unsigned short)pack<T>(x.at[0], 0.f);
    }
};
