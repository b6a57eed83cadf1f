// Wrong on purpose: the last tile of C is never written.

__global__ void leaves_last_tile(int m, int n, int w, const float* A, const float* val,
                                 const int* index, float* C)
{
    const int i = blockIdx.x * 32 + threadIdx.x % 32;
    if (blockIdx.x + 1 == gridDim.x && blockIdx.y + 1 == gridDim.y) return;  // should be: nothing
    for (int j = blockIdx.y * 32 + threadIdx.x / 32; j < blockIdx.y * 32 + 32; j += 2) {
        float acc = 0.f;
        for (int r = 0; r < w; ++r)
            acc = fmaf(val[(size_t)r * n + j], A[(size_t)index[(size_t)r * n + j] * m + i], acc);
        C[(size_t)j * m + i] = acc;
    }
}
