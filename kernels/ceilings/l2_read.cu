// l2_read: what L2 delivers to all SMs when every block reads the same buffer, which L2 holds.
//
// ld.global.cg skips L1, so each load is an L2 access. Each block starts at another place, or all
// would ask for the same line at the same time. The sum keeps the loads alive and is what the host
// compares.
//
// Template:  UNROLL  loads of a thread that are in flight together

template <int UNROLL>
__global__ void l2_read(int size, int rounds,  // float4 values of the buffer; times it is read
                        const float4* __restrict__ in, float* __restrict__ out)  // one sum a thread
{
    float sum = 0.f;
    int at = (int)((long long)blockIdx.x * size / gridDim.x) / (blockDim.x * UNROLL) *
             (blockDim.x * UNROLL);
    for (int step = 0; step < rounds * (size / (int)(blockDim.x * UNROLL)); ++step) {
        float4 v[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) v[u] = __ldcg(in + at + u * blockDim.x + threadIdx.x);
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) sum += (v[u].x + v[u].y) + (v[u].z + v[u].w);
        at += blockDim.x * UNROLL;
        if (at == size) at = 0;
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
