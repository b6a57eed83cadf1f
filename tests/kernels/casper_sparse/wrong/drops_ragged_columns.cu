// Wrong on purpose: only whole tiles of 32 columns are computed; what n leaves over is never
// written.

__global__ void drops_ragged_columns(int m, int n, const int* row_ptr, const int* col_idx,
                                     const float* val, const float* B, float* C)
{
    const int row = blockIdx.x * 8 + threadIdx.x / 32;
    if (row >= m) return;
    for (int col = threadIdx.x % 32; col < n / 32 * 32; col += 32) {  // should be: col < n
        float acc = 0.f;
        for (int i = row_ptr[row]; i < row_ptr[row + 1]; ++i)
            acc = fmaf(val[i], B[(size_t)col_idx[i] * n + col], acc);
        C[(size_t)row * n + col] = acc;
    }
}
