// vec<W>: W neighbouring float32 values that travel in one load or store (4, 8 or 16 bytes).
#pragma once

template <int W>
struct alignas(4 * W) vec {
    float at[W];
};

// acc += a * b, element by element: W fused multiply-adds.
template <int W>
__device__ __forceinline__ void fma(vec<W>& acc, float a, const vec<W>& b)
{
#pragma unroll
    for (int w = 0; w < W; ++w) acc.at[w] = fmaf(a, b.at[w], acc.at[w]);
}

// Read-only load through the non-coherent path (LDG.CONSTANT): B does not change during the kernel.
__device__ __forceinline__ vec<1> load(const vec<1>* p)
{
    return {{__ldg(reinterpret_cast<const float*>(p))}};
}
__device__ __forceinline__ vec<2> load(const vec<2>* p)
{
    const float2 v = __ldg(reinterpret_cast<const float2*>(p));
    return {{v.x, v.y}};
}
__device__ __forceinline__ vec<4> load(const vec<4>* p)
{
    const float4 v = __ldg(reinterpret_cast<const float4*>(p));
    return {{v.x, v.y, v.z, v.w}};
}

// Loads from shared memory in one LDS; assigning the struct instead would load its elements one by
// one.
__device__ __forceinline__ vec<4> load_shared(const void* p)
{
    const float4 v = *static_cast<const float4*>(p);
    return {{v.x, v.y, v.z, v.w}};
}
