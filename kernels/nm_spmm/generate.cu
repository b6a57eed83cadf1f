// Random operands: A and B's values, and the rows that B keeps (operands.py makes the same bits
// with NumPy).
//
// Every value and every choice comes from its position alone (splitmix.cuh). The three keys keep A,
// the values of B and the pattern of B apart.
//
// Template:  dtype    FP32, TF32 or BF16, what the values fit
//            Element  float, or unsigned short: the bits of a BF16

#include "splitmix.cuh"

enum Dtype { FP32, TF32, BF16 };

// FP32: one of 2^24 equal steps of (0, 1]. The others: the middle of one of 2^24 equal steps of
// (-1, 1), exact in float32 and never 0, without the bits that the dtype does not hold, which
// leaves it below 1 and above 0 in magnitude.
template <Dtype dtype>
__device__ __forceinline__ float random_value(u64 key, u64 index)
{
    const int step = random_u32(key, index) >> 8;
    if (dtype == FP32) return (step + 1) * 0x1p-24f;
    const float x = (step - (1 << 23) + 0.5f) * 0x1p-23f;
    return __uint_as_float(__float_as_uint(x) & (dtype == TF32 ? 0xffffe000 : 0xffff0000));
}

// A thread makes an element, in the order of memory.
template <Dtype dtype, typename Element>
__global__ void
values(u64 size,  // elements
       u64 real,  // those that are drawn; the others, of surplus rows, are 0
       u64 key,
       Element* __restrict__ array)  // `size` elements: A column-major, or val of B row-major
{
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= size) return;
    const float x = i < real ? random_value<dtype>(key, i) : 0.f;
    if constexpr (sizeof(Element) == 2) array[i] = __float_as_uint(x) >> 16;
    else array[i] = x;
}

// The pattern of B: a thread draws the rows that a vector keeps of a group, by selection sampling
// (Knuth, The Art of Computer Programming, 3.4.2, algorithm S): of the rows that are left, each is
// equally likely to be the next taken.
__global__ void
pattern(int k, int q,         // rows of B, vectors of a row
        int keep, int group,  // N and M
        u64 key,
        int* __restrict__ index)  // ceil(k / group) * keep x q, row-major, rows of B
{
    const u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    const u64 g = thread / q;
    const u64 first = g * group;
    if (first >= k) return;
    const int rows = min((u64)group, k - first);
    int* out = index + g * keep * q + thread % q;

    int taken = 0;
    const int all = min(keep, rows);
    for (int row = 0; row < rows && taken < all; row++)
        if (__umulhi(random_u32(key, thread * group + row), rows - row) < all - taken)
            out[(u64)taken++ * q] = first + row;
    // A short last group keeps all of its rows and repeats the last one.
    for (; taken < keep; taken++) out[(u64)taken * q] = k - 1;
}
