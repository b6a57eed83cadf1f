// Wrong on purpose: two blocks share a tile's compressed rows, and each writes its sum over the
// other's.

__global__ void split_k_overwrites(int m, int n, int w, const float* A, const float* val,
                                   const int* index, float* C)
{
    const int i = blockIdx.x * 32 + threadIdx.x % 32;
    const int steps = (w + 31) / 32, share = (steps + 1) / 2;
    const int first = blockIdx.z * share, last = min(steps, first + share);
    if (first >= last) return;
    for (int j = blockIdx.y * 32 + threadIdx.x / 32; j < blockIdx.y * 32 + 32; j += 2) {
        float acc = 0.f;
        for (int r = first * 32; r < min(w, last * 32); ++r)
            acc = fmaf(val[(size_t)r * n + j], A[(size_t)index[(size_t)r * n + j] * m + i], acc);
        C[(size_t)j * m + i] = acc;  // should be: atomicAdd
    }
}
