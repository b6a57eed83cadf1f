// copy: what DRAM moves, one byte written for every byte read, 16 bytes a thread.
//
// One load a thread and small blocks: on an H200 this matches cudaMemcpy, while 2, 4 or 8 loads a
// thread, or streaming hints, lose up to 8%.
//
// Template:  THREADS  of a block; the grid covers the buffers exactly

template <int THREADS>
__global__ void copy(const float4* __restrict__ in, float4* __restrict__ out)
{
    const size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    out[i] = in[i];
}
