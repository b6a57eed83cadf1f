// Your kernel: copy this file, change it, and put it on trial with
//
//     python -m artifact trial my_kernel.cu --room ROOM
//
// ROOM is a system whose sparse operand is CSR; `python -m artifact trial --room ROOM` lists what
// arguments a system has.
//
// entry:     my_kernel<4>
// grid:      ceil(n / 128), m
// block:     128
// arguments: m, n, a.row_ptr, a.col_idx, a.val:float32, b:float32, c:float32
// require:   m < 65536
//
//   C (m x n) = A (m x k, CSR) . B (k x n),  float32, B and C row-major
//
// Template:  UNROLL  products of a step

template <int UNROLL>
__global__ void
my_kernel(int m,                            // rows of A and C
          int n,                            // columns of B and C
          const int* __restrict__ row_ptr,  // m + 1
          const int* __restrict__ col_idx,  // nnz
          const float* __restrict__ val,    // nnz
          const float* __restrict__ B,      // k x n
          float* __restrict__ C)            // m x n
{
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    const int row = blockIdx.y;
    if (col >= n) return;

    float sum = 0.f;
#pragma unroll UNROLL
    for (int i = row_ptr[row]; i < row_ptr[row + 1]; ++i)
        sum += val[i] * B[(size_t)col_idx[i] * n + col];
    C[(size_t)row * n + col] = sum;
}
