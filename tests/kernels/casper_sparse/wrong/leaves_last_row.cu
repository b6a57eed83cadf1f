// Wrong on purpose: the bounds check spares the last row, which is never written.

__global__ void leaves_last_row(int m, int n, const int* row_ptr, const int* col_idx,
                                const float* val, const float* B, float* C)
{
    const int row = blockIdx.x * 8 + threadIdx.x / 32;
    if (row + 1 >= m) return;  // should be: row >= m
    for (int col = threadIdx.x % 32; col < n; col += 32) {
        float acc = 0.f;
        for (int i = row_ptr[row]; i < row_ptr[row + 1]; ++i)
            acc = fmaf(val[i], B[(size_t)col_idx[i] * n + col], acc);
        C[(size_t)row * n + col] = acc;
    }
}
