// The source's GPU generators (casperSPARSE, section IV.B): row counts, sparse entries, dense
// matrix.
//
// Each thread makes one element from its index alone, so the result depends on the seed and on
// nothing else, and generate.py makes the same bits with NumPy. The source calls its generator "a
// lightweight linear congruential generator" and gives no constants: these are Numerical Recipes',
// with the high half folded into the low between the steps, because neighbouring indices would
// otherwise stay a fixed distance apart.

__device__ __forceinline__ unsigned lcg(unsigned x) { return x * 1664525u + 1013904223u; }

// A uniform 32-bit number for (seed, stream, index); the streams keep counts, columns, values and B
// apart.
__device__ __forceinline__ unsigned random_u32(unsigned seed, unsigned stream, unsigned index)
{
    unsigned x = lcg(index ^ (seed * 0x9E3779B9u + stream * 0x85EBCA6Bu));
    x = lcg(x ^ (x >> 16));
    x = lcg(x ^ (x >> 15));
    return x ^ (x >> 16);
}

// The middle of one of 2^23 equal steps of (0, 1): exact in float32, never 0 and never 1.
__device__ __forceinline__ float random_unit(unsigned seed, unsigned stream, unsigned index)
{
    return ((random_u32(seed, stream, index) >> 9) + 0.5f) * 0x1p-23f;
}

// count[i] uniform in [low, high]; the prefix sum that makes row_ptr of it is the caller's.
__global__ void row_counts(int m, int low, int high, unsigned seed, int* __restrict__ count)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < m) count[i] = low + (int)__umulhi(random_u32(seed, 0, i), high - low + 1);
}

// col_idx uniform in [0, k), val uniform in (0, 1).
__global__ void sparse_entries(int nnz, int k, unsigned seed, int* __restrict__ col_idx,
                               float* __restrict__ val)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= nnz) return;
    col_idx[i] = __umulhi(random_u32(seed, 1, i), k);
    val[i] = random_unit(seed, 2, i);
}

// B, k x n row-major, uniform in (0, 1).
__global__ void dense(unsigned long long size, unsigned seed, float* __restrict__ B)
{
    const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < size) B[i] = random_unit(seed, 3, (unsigned)i);
}
