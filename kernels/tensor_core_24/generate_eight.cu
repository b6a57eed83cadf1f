// Random operands of e4m3: A, 2:4 along k, and B^T, dense (operands.py makes the same bits with
// NumPy).
//
// Every group and every value comes from its position alone (splitmix.cuh), as in generate.cu:
// uniform in (-448, 448), whose ends are the largest numbers, rounded to the nearest.

#include "splitmix.cuh"

using u8 = unsigned char;

// Two numbers, at `index` and the one after, in the lower 16 bits.
__device__ __forceinline__ unsigned random_two(u64 key, u64 index)
{
    float x[2];
#pragma unroll
    for (int i = 0; i < 2; i++)
        x[i] = ((int)(random_u32(key, index + i) >> 8) - (1 << 23) + 0.5f) * 0x1p-23f * 448.f;
    unsigned short two;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(two) : "f"(x[1]), "f"(x[0]));
    return two;
}

// A: a thread makes sixteen columns of a row, eight values and one uint16 of metadata.
__global__ void sparse_eight(int m, int k,             // sizes; k_pad = k rounded up to 32
                             u64 indices, u64 values,  // keys
                             u8* __restrict__ val,     // m x k_pad / 2, row-major, 8-byte aligned
                             unsigned short* __restrict__ meta)  // m x k_pad / 16, row-major
{
    const unsigned units = 2 * (k / 32 + (k % 32 != 0));  // threads of a row
    const u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (thread >= (u64)m * units) return;
    const int column = thread % units * 16;

    unsigned kept[2] = {}, packed = 0;
#pragma unroll
    for (int g = 0; g < 4; g++) {
        // The pairs (0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3): those that lie in the columns
        // there are, and in the padding the first one.
        const int left = k - column - 4 * g, pairs = left >= 4 ? 6 : left == 3 ? 3 : 1;
        const unsigned choice = __umulhi(random_u32(indices, 4 * thread + g), pairs);
        packed |= (0xEDC984u >> 4 * choice & 15) << 4 * g;
        const unsigned two = random_two(values, 8 * thread + 2 * g);
        kept[g / 2] |= (left >= 2 ? two : left == 1 ? two & 0xff : 0) << 16 * (g % 2);
    }
    reinterpret_cast<uint2*>(val)[thread] = make_uint2(kept[0], kept[1]);
    meta[thread] = packed;
}

// B: a thread makes eight values, one after the other in memory.
__global__ void dense_eight(u64 size,  // elements, n * k
                            u64 key,
                            u8* __restrict__ B)  // 8-byte aligned
{
    const u64 at = 8 * ((u64)blockIdx.x * blockDim.x + threadIdx.x);
    unsigned two[4];
#pragma unroll
    for (int i = 0; i < 4; i++) two[i] = random_two(key, at + 2 * i);
    if (at + 8 <= size)
        reinterpret_cast<uint2*>(B)[at / 8] =
            make_uint2(two[0] | two[1] << 16, two[2] | two[3] << 16);
    else
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (at + i < size) B[at + i] = two[i / 2] >> 8 * (i % 2);
}
