// opt0: CUDA cores. 128 threads share a block of A, each multiplies it with a column of B, one
// scalar FMA after another.
//
//            128 columns of B, one a thread
//   ┌────┐  │││││││││││
//   │ A  │  │││││││││││  k   acc[row] += A[row][k] * B[k][column] for the 64 rows of the block row
//   └────┘  │││││││││││
//   64 x 64, in shared memory as float
//
// Blocks are 64 x 64. B may lie in either order, and C, too: they come with strides.
//
// Template:  T  BF16, F16 or TF32, which is multiplied as the float32 that it is
#include "half.cuh"

template <Dtype T>
__device__ __forceinline__ float widen(const void* from, long long i)
{
    if constexpr (T == TF32) return static_cast<const float*>(from)[i];
    else return unpack<T>(static_cast<const unsigned short*>(from)[i]).x;
}

template <Dtype T>
__global__ void __launch_bounds__(128)
    opt0(const int* __restrict__ row_ptr, const int* __restrict__ col_idx,
         const void* __restrict__ val,  // Bcsr, blocks of 64 x 64
         const void* __restrict__ b, long long b_down,
         long long b_right,  // k x n; elements from a row, a column to the next
         void* __restrict__ c, long long c_down, long long c_right,  // m x n, likewise
         int m, int n, int k)
{
    __shared__ float block[64][64];
    const int row = blockIdx.x, column = blockIdx.y * 128 + threadIdx.x;
    const bool inside = column < n;
    float acc[64] = {};
    for (int i = row_ptr[row]; i < row_ptr[row + 1]; ++i) {
        __syncthreads();
        for (int e = threadIdx.x; e < 64 * 64; e += 128)
            block[e / 64][e % 64] = widen<T>(val, (long long)i * 64 * 64 + e);
        __syncthreads();
        const int first = col_idx[i] * 64, steps = min(64, k - first);
        for (int step = 0; step < steps; ++step) {
            const float x = inside ? widen<T>(b, (first + step) * b_down + column * b_right) : 0.f;
#pragma unroll
            for (int r = 0; r < 64; ++r) acc[r] = fmaf(block[r][step], x, acc[r]);
        }
    }
#pragma unroll
    for (int r = 0; r < 64; ++r)
        if (inside && row * 64 + r < m) {
            const long long at = (row * 64ll + r) * c_down + column * c_right;
            if constexpr (T == TF32) static_cast<float*>(c)[at] = acc[r];
            else
                static_cast<unsigned short*>(c)[at] =
                    static_cast<unsigned short>(pack<T>(acc[r], 0.f));
        }
}
