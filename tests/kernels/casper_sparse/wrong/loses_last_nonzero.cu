// Wrong on purpose: the loop over a row ends one non-zero early.

__global__ void loses_last_nonzero(int m, int n, const int* row_ptr, const int* col_idx,
                                   const float* val, const float* B, float* C)
{
    const int row = blockIdx.x * 8 + threadIdx.x / 32;
    if (row >= m) return;
    for (int col = threadIdx.x % 32; col < n; col += 32) {
        float acc = 0.f;
        for (int i = row_ptr[row]; i < row_ptr[row + 1] - 1;
             ++i)  // should be: i < row_ptr[row + 1]
            acc = fmaf(val[i], B[(size_t)col_idx[i] * n + col], acc);
        C[(size_t)row * n + col] = acc;
    }
}
