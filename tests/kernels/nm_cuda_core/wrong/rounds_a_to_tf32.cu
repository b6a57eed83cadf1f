// Wrong on purpose: A keeps the 10 bits of mantissa that a tensor core would see of it (tf32),
// rounded to nearest.

__global__ void rounds_a_to_tf32(int m, int n, int w, const float* A, const float* val,
                                 const int* index, float* C)
{
    const int i = blockIdx.x * 32 + threadIdx.x % 32;
    for (int j = blockIdx.y * 32 + threadIdx.x / 32; j < blockIdx.y * 32 + 32; j += 2) {
        float acc = 0.f;
        for (int r = 0; r < w; ++r) {
            const int bits = __float_as_int(A[(size_t)index[(size_t)r * n + j] * m + i]);
            acc = fmaf(val[(size_t)r * n + j], __int_as_float((bits + 0x1000) & ~0x1fff), acc);
        }
        C[(size_t)j * m + i] = acc;
    }
}
