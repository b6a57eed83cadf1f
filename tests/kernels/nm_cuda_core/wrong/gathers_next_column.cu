// Wrong on purpose: a column takes the indices of the column after it: right but for the last one
// of a vector.

__global__ void gathers_next_column(int m, int n, int w, const float* A, const float* val,
                                    const int* index, float* C)
{
    const int i = blockIdx.x * 32 + threadIdx.x % 32;
    for (int j = blockIdx.y * 32 + threadIdx.x / 32; j < blockIdx.y * 32 + 32; j += 2) {
        const int from = min(j + 1, n - 1);  // should be: j
        float acc = 0.f;
        for (int r = 0; r < w; ++r)
            acc = fmaf(val[(size_t)r * n + j], A[(size_t)index[(size_t)r * n + from] * m + i], acc);
        C[(size_t)j * m + i] = acc;
    }
}
