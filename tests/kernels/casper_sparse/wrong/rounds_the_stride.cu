// Wrong on purpose: rows of B are taken to be a multiple of four values apart, right only where 4
// divides n.

__global__ void rounds_the_stride(int m, int n, const int* row_ptr, const int* col_idx,
                                  const float* val, const float* B, float* C)
{
    const int row = blockIdx.x * 8 + threadIdx.x / 32;
    if (row >= m) return;
    for (int col = threadIdx.x % 32; col < n; col += 32) {
        float acc = 0.f;
        for (int i = row_ptr[row]; i < row_ptr[row + 1]; ++i)
            acc = fmaf(val[i], B[(size_t)col_idx[i] * (n / 4 * 4) + col], acc);  // should be: * n
        C[(size_t)row * n + col] = acc;
    }
}
