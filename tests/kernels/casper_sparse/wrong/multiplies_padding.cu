// Wrong on purpose: rows are padded to a multiple of four with zeros that are multiplied by row 0
// of B. That changes nothing until row 0 holds an infinity or a NaN, and then every row that was
// padded is NaN.

__global__ void multiplies_padding(int m, int n, const int* row_ptr, const int* col_idx,
                                   const float* val, const float* B, float* C)
{
    const int row = blockIdx.x * 8 + threadIdx.x / 32;
    if (row >= m) return;
    const int start = row_ptr[row], end = row_ptr[row + 1];
    for (int col = threadIdx.x % 32; col < n; col += 32) {
        float acc = 0.f;
        for (int i = start; i < start + (end - start + 3) / 4 * 4; ++i) {
            const bool inside =
                i < end;  // should skip the load and the product where this is false
            acc = fmaf(inside ? val[i] : 0.f, B[(size_t)(inside ? col_idx[i] : 0) * n + col], acc);
        }
        C[(size_t)row * n + col] = acc;
    }
}
