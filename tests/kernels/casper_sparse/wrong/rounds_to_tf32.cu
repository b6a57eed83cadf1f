// Wrong on purpose: B keeps the 10 bits of mantissa that a tensor core would see of it (tf32).

__global__ void rounds_to_tf32(int m, int n, const int* row_ptr, const int* col_idx,
                               const float* val, const float* B, float* C)
{
    const int row = blockIdx.x * 8 + threadIdx.x / 32;
    if (row >= m) return;
    for (int col = threadIdx.x % 32; col < n; col += 32) {
        float acc = 0.f;
        for (int i = row_ptr[row]; i < row_ptr[row + 1]; ++i) {
            const int bits = __float_as_int(B[(size_t)col_idx[i] * n + col]);
            acc = fmaf(val[i], __int_as_float((bits + 0x1000) & ~0x1fff), acc);
        }
        C[(size_t)row * n + col] = acc;
    }
}
