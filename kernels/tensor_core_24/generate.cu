// Random operands: A, 2:4 along k, and B, dense, both 16-bit floats (operands.py makes the same
// bits with NumPy).
//
// Every group and every value comes from its position alone (splitmix.cuh). The three keys keep the
// indices and values of A and the values of B apart.
//
// Template:  dtype  BF16 or FP16, what the values are rounded to

#include "splitmix.cuh"

enum Dtype { BF16, FP16 };

using u16 = unsigned short;

// The middle of one of 2^24 equal steps of (-1, 1), exact in float32 and never 0, rounded to the
// nearest.
template <Dtype dtype>
__device__ __forceinline__ unsigned random_half(u64 key, u64 index)
{
    const float x = ((int)(random_u32(key, index) >> 8) - (1 << 23) + 0.5f) * 0x1p-23f;
    if (dtype == FP16) {
        u16 bits;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
        return bits;
    }
    const unsigned wide = __float_as_uint(x);
    return (wide + 0x7fff + (wide >> 16 & 1)) >> 16;
}

// A: a thread makes sixteen columns of a row, eight values and one uint16 of metadata.
template <Dtype dtype>
__global__ void sparse(
    int m, int k,             // sizes; k_pad = k rounded up to 16
    u64 indices, u64 values,  // keys
    u16* __restrict__ val,    // m x k_pad / 2, row-major, 16-byte aligned
    u16* __restrict__ meta)  // m x k_pad / 16, row-major; of four bits the lower two: smaller index
{
    const unsigned units = k / 16 + (k % 16 != 0);  // threads of a row
    const u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (thread >= (u64)m * units) return;
    const int column = thread % units * 16;

    unsigned kept[4], packed = 0;
#pragma unroll
    for (int g = 0; g < 4; g++) {
        // The pairs (0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3): those that lie in the columns
        // there are, and in the padding the first one.
        const int left = k - column - 4 * g, pairs = left >= 4 ? 6 : left == 3 ? 3 : 1;
        const unsigned choice = __umulhi(random_u32(indices, 4 * thread + g), pairs);
        packed |= (0xEDC984u >> 4 * choice & 15) << 4 * g;
        const u64 at = 8 * thread + 2 * g;
        const unsigned low = random_half<dtype>(values, at),
                       high = random_half<dtype>(values, at + 1);
        kept[g] = left >= 2 ? low | high << 16 : left == 1 ? low : 0;
    }
    reinterpret_cast<uint4*>(val)[thread] = make_uint4(kept[0], kept[1], kept[2], kept[3]);
    meta[thread] = packed;
}

// B: a thread makes eight values, one after the other in memory.
template <Dtype dtype>
__global__ void dense(u64 size,  // elements, k * n
                      u64 key,
                      u16* __restrict__ B)  // k x n, row-major, 16-byte aligned
{
    const u64 at = 8 * ((u64)blockIdx.x * blockDim.x + threadIdx.x);
    if (at + 8 <= size) {
        unsigned two[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            two[i] =
                random_half<dtype>(key, at + 2 * i) | random_half<dtype>(key, at + 2 * i + 1) << 16;
        reinterpret_cast<uint4*>(B)[at / 8] = make_uint4(two[0], two[1], two[2], two[3]);
    } else {
        for (u64 i = at; i < size; i++) B[i] = random_half<dtype>(key, i);
    }
}
