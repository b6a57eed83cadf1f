// shared_read: what shared memory delivers when a warp's 16-byte loads touch every bank once.
//
// Template:  WORDS   float32 values of the block's shared memory
//            UNROLL  loads of a thread that are in flight together

template <int WORDS, int UNROLL>
__global__ void
shared_read(int rounds, const float* __restrict__ in,  // WORDS values, the same for all blocks
            float* __restrict__ out)                   // one sum a thread
{
    __shared__ __align__(16) float tile[WORDS];
    for (int i = threadIdx.x; i < WORDS; i += blockDim.x) tile[i] = in[i];
    __syncthreads();

    const float4* shared = reinterpret_cast<const float4*>(tile);
    float sum = 0.f;
    int at = threadIdx.x;
    for (int step = 0; step < rounds; ++step) {
        float4 v[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            v[u] = shared[at];
            at = (at + blockDim.x) % (WORDS / 4);
        }
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) sum += (v[u].x + v[u].y) + (v[u].z + v[u].w);
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
