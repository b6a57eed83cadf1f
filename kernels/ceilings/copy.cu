// copy: what DRAM moves, one byte written for every byte read, 16 bytes a thread and load.
//
// Template:  UNROLL  loads of a thread that are in flight together

template <int UNROLL>
__global__ void copy(const float4* __restrict__ in, float4* __restrict__ out)  // both a multiple of the grid
{
    const size_t first = (size_t)blockIdx.x * blockDim.x * UNROLL + threadIdx.x;
    float4 v[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) v[u] = __ldcs(in + first + u * blockDim.x);
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) __stcs(out + first + u * blockDim.x, v[u]);
}
