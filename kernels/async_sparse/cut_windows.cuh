// Windows that are cut into several tasks: each adds its sums to the same rows, which somebody
// clears and rounds (sm_90a).
//
//   task     { window, first of its columns, the one past its last, -1 or which of the cut
//            windows }: one int4 each
//   float32  clear_cut ── tasks add to C
//   16 bits  tasks add to float32 rows of their own, `sums` ── round_cut stores C and leaves zeros
//            for the next launch
//
// The two are launched with blocks of 256 threads, (cut windows, any) of them. Rows are `width`
// elements apart; round_cut wants whole units of 16 bytes.
#pragma once

#include "half.cuh"

__device__ __forceinline__ void add4(float* to, float4 x)
{
#if __CUDA_ARCH__ < 900
    atomicAdd(to, x.x), atomicAdd(to + 1, x.y), atomicAdd(to + 2, x.z), atomicAdd(to + 3, x.w);
#else
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(
                     __cvta_generic_to_global(to)),
                 "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w)
                 : "memory");
#endif
}

// Where row p of the windows is in C: rows may have been put in another order.
__device__ __forceinline__ int row_of(const int* __restrict__ order, int p)
{
    return order ? __ldg(order + p) : p;
}

template <int WINDOW>
__global__ void __launch_bounds__(256)
    clear_cut(const int* __restrict__ cut, const int* __restrict__ order, float* __restrict__ c,
              int m, int width)
{
    const int first = cut[blockIdx.x] * WINDOW;
    for (int p = first; p < min(m, first + WINDOW); ++p) {
        float* to = c + (size_t)row_of(order, p) * width;
        for (int i = blockIdx.y * 256 + threadIdx.x; i < width; i += gridDim.y * 256) to[i] = 0.f;
    }
}

// sums: WINDOW rows for each of the cut windows; c: bits of T.
template <Dtype T, int WINDOW>
__global__ void __launch_bounds__(256)
    round_cut(const int* __restrict__ cut, float* __restrict__ sums, unsigned short* __restrict__ c,
              int m, int width)
{
    const int row = cut[blockIdx.x] * WINDOW, rows = min(WINDOW, m - row);
    float4* from = reinterpret_cast<float4*>(sums + (size_t)blockIdx.x * WINDOW * width);
    uint2* to = reinterpret_cast<uint2*>(c + (size_t)row * width);
    for (int i = blockIdx.y * 256 + threadIdx.x; i < rows * (width / 4); i += gridDim.y * 256) {
        const float4 x = from[i];
        to[i] = make_uint2(pack<T>(x.x, x.y), pack<T>(x.z, x.w));
        from[i] = {0.f, 0.f, 0.f, 0.f};
    }
}
