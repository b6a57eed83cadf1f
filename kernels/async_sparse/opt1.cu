// opt1: WGMMA. One warpgroup loads a block of A and its 64 x N of B together, by hand into the
// 128-byte swizzle, and multiplies.
//
//   │ load A, B │ sync │ wgmma ... wait │ sync │ load A, B │ sync │ wgmma ... wait │
//   never both at once
//
// Every thread computes addresses, and the tensor cores wait for memory at each block. (Section
// III-A, Fig. 3a.)
//
// Template:  T, N  as in step.cuh; B is K_MAJOR
//            COLUMN  whether C is column-major; TRACE  whether clocks are kept (trace.cuh)
#include "output.cuh"
#include "trace.cuh"

// Lines of 128 bytes, 16 bytes a thread at a time: line i from `from` + i * pitch bytes, unit u at
// u ^ i % 8. Bytes from `end` on, and lines from `lines` on, are zeros.
template <int LINES>
__device__ __forceinline__ void
load_swizzled(unsigned char* shared, const unsigned char* from, long long pitch, int lines, int end)
{
#pragma unroll 8
    for (int e = threadIdx.x; e < LINES * 8; e += 128) {
        const int line = e / 8, unit = e % 8;
        float4 x = {0.f, 0.f, 0.f, 0.f};
        if (line < lines && 16 * unit < end)
            x = __ldg(reinterpret_cast<const float4*>(from + line * pitch + 16 * unit));
        *reinterpret_cast<float4*>(shared + 128 * line + 16 * (unit ^ line % 8)) = x;
    }
}

template <Dtype T, bool COLUMN, int N, bool TRACE = false>
__global__ void __launch_bounds__(128)
    opt1(const int* __restrict__ row_ptr, const int* __restrict__ col_idx,
         const unsigned char* __restrict__ val,  // Bcsr, 64 x 64
         const unsigned char* __restrict__ b,
         long long pitch,  // n rows of k values, `pitch` bytes apart, whole units of 16
         void* __restrict__ c, long long width,  // store_direct
         int m, int n, Span* spans)              // TRACE
{
    constexpr int STEPS = 64 / K<T>;
    const Trace<TRACE> trace{spans};
    const bool first = threadIdx.x == 0;
    extern __shared__ __align__(1024) unsigned char memory[];  // A, B
    const int row = blockIdx.x, column = blockIdx.y * N, end = row_ptr[row + 1] * STEPS;
    float acc[1][N / 2] = {};
    for (int step = row_ptr[row] * STEPS; step < end; ++step) {
        const int block = step / STEPS, part = step % STEPS;
        const long long at = (col_idx[block] * (long long)STEPS + part) * 128;  // bytes of k
        const int seen = step - row_ptr[row] * STEPS;
        if (first) trace.begin(LOAD, 0, seen);
        load_swizzled<64>(
            memory, val + (long long)block * 64 * 64 * SIZE<T> + part * 128, 64 * SIZE<T>, 64, 128);
        load_swizzled<N>(memory + A_BYTES, b + column * pitch + at, pitch, n - column,
                         (int)min(pitch - at, 128ll));
        async_proxy_fence();
        __syncthreads();
        if (first) trace.end(LOAD, 0, seen), trace.begin(MULTIPLY, 0, seen);
        multiply_step<T, K_MAJOR, N>(acc, memory, memory + A_BYTES, true);
        wgmma_wait<0>();
        if (first) trace.end(MULTIPLY, 0, seen);
        __syncthreads();
    }
    settle(acc);
    if (first) trace.begin(STORE, 0, 0);
    store_direct<T, COLUMN, false, N>(acc, c, width, m, n, row * 64, column);
    if (first) trace.end(STORE, 0, 0);
}
