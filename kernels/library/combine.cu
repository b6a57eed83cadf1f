// combine: y = alpha * x + beta * y, x and y in any memory orders.
//
// What surrounds a multiplication that its kernel does not do itself: a factor, a sum with what out
// holds, and B or out in another memory order than the kernel's. One thing is to be known of it: a
// tile of 32 x 32 passes through shared memory, so that both sides are touched 128 (or 64) bytes at
// a time, whichever way each of them runs.
//
// Template:  T  of an element: float, or for bit patterns of a 16-bit type  Sixteen<BF16>,
//               Sixteen<F16>
// Launch:    blocks of 32 x 8 threads; any grid
// x and y may be one matrix with the same strides: a tile is read whole before it is written.

#include "half.cuh"

template <Dtype D>
struct Sixteen {
    unsigned short bits;
};

__device__ __forceinline__ float number(float x) { return x; }
template <Dtype D>
__device__ __forceinline__ float number(Sixteen<D> x)
{
    return unpack<D>(x.bits).x;
}

__device__ __forceinline__ void put(float* to, float x) { *to = x; }
template <Dtype D>
__device__ __forceinline__ void put(Sixteen<D>* to, float x)
{
    to->bits = (unsigned short)pack<D>(x, 0.0f);
}

template <class T>
__global__ void
combine(int rows, int columns, const T* x, long long x_row,
        long long x_column,  // elements from one row to the next, from one column to the next
        T* y, long long y_row, long long y_column, float alpha,
        float beta)  // beta 0: y is not read, so that it may hold anything
{
    __shared__ float tile[32][33];
    const bool along_x = x_column <= x_row,
               along_y = y_column <= y_row;  // whether neighbours lie in a row
    const int wide = (columns - 1) / 32 + 1;
    const long long tiles = (long long)((rows - 1) / 32 + 1) * wide;
    for (long long t = blockIdx.x; t < tiles; t += gridDim.x) {
        const int row = (int)(t / wide) * 32, column = (int)(t % wide) * 32;
        __syncthreads();
        for (int i = threadIdx.y; i < 32; i += 8) {
            const int r = along_x ? i : threadIdx.x, c = along_x ? threadIdx.x : i;
            if (row + r < rows && column + c < columns)
                tile[r][c] = number(x[(row + r) * x_row + (column + c) * x_column]);
        }
        __syncthreads();
        for (int i = threadIdx.y; i < 32; i += 8) {
            const int r = along_y ? i : threadIdx.x, c = along_y ? threadIdx.x : i;
            if (row + r < rows && column + c < columns) {
                T* const to = y + (row + r) * y_row + (column + c) * y_column;
                const float product = alpha * tile[r][c];
                put(to, beta == 0.0f ? product : fmaf(beta, number(*to), product));
            }
        }
    }
}
