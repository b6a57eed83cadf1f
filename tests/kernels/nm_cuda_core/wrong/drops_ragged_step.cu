// Wrong on purpose: only whole steps of 32 compressed rows are multiplied; what w leaves over is
// lost.

__global__ void drops_ragged_step(int m, int n, int w, const float* A, const float* val,
                                  const int* index, float* C)
{
    const int i = blockIdx.x * 32 + threadIdx.x % 32;
    for (int j = blockIdx.y * 32 + threadIdx.x / 32; j < blockIdx.y * 32 + 32; j += 2) {
        float acc = 0.f;
        for (int r = 0; r < w / 32 * 32; ++r)  // should be: r < w
            acc = fmaf(val[(size_t)r * n + j], A[(size_t)index[(size_t)r * n + j] * m + i], acc);
        C[(size_t)j * m + i] = acc;
    }
}
