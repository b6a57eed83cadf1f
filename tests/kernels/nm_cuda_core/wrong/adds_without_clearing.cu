// Wrong on purpose: adds to C, as if somebody had cleared it.

__global__ void adds_without_clearing(int m, int n, int w, const float* A, const float* val,
                                      const int* index, float* C)
{
    const int i = blockIdx.x * 32 + threadIdx.x % 32;
    for (int j = blockIdx.y * 32 + threadIdx.x / 32; j < blockIdx.y * 32 + 32; j += 2) {
        float acc = 0.f;
        for (int r = 0; r < w; ++r)
            acc = fmaf(val[(size_t)r * n + j], A[(size_t)index[(size_t)r * n + j] * m + i], acc);
        C[(size_t)j * m + i] += acc;  // should be: =
    }
}
