// fma: how many fused multiply-adds the CUDA cores do when nothing else is in their way.
//
// Every thread iterates x <- a x + b on CHAINS independent values: a chain waits four cycles for
// its last result, so eight chains and 16 warps a scheduler keep the pipe full. With 0 < a < 1 the
// values approach b / (1 - a), which is what the host compares the output with.
//
// Template:  CHAINS  independent values of a thread

template <int CHAINS>
__global__ void fma(int iterations, const float* __restrict__ a, const float* __restrict__ b,
                    float* __restrict__ out)  // one value a thread: the mean of its chains
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const float scale = a[i], shift = b[i];
    float x[CHAINS];
#pragma unroll
    for (int c = 0; c < CHAINS; ++c) x[c] = shift + c;
#pragma unroll 32
    for (int n = 0; n < iterations; ++n)
#pragma unroll
        for (int c = 0; c < CHAINS; ++c) x[c] = fmaf(scale, x[c], shift);
    float sum = 0.f;
#pragma unroll
    for (int c = 0; c < CHAINS; ++c) sum += x[c];
    out[i] = sum / CHAINS;
}
