// wcsr: windows of 64 rows times the rows of B that their columns name, as published: one warpgroup
// loads, then multiplies.
//
//   thread 0      asks TMA for 64 x 128 bytes of A ───────────┐
//   all threads   gather as many rows of B, swizzled by hand ── sync ── wait for A ── wgmma
//                   ── wait, sync ── again
//
// A window's values lie side by side, so A comes by TMA. The rows of B that it needs do not: its
// column indices name them, all threads fetch them through registers, and what is padding (index
// -1), or belongs to the window behind, is zeros. Several blocks share an SM, and one multiplies
// while another loads. (Section III-B and III-C.)
//
// A block has a task, a window or a part of one: large windows are cut (cut_windows.cuh) into tasks
// of equal size, which add to C by atomicAdd, in the order in which they are done: last bits change
// where a window has three of them or more.
//
// Template:  T  BF16, F16 or TF32
//            N  columns of C in a tile, a multiple of 64
#include "cut_windows.cuh"
#include "output.cuh"

// TF32 must lie K-major: N lines of 32 values of k. A thread reads 4 columns of 4 rows, 16 bytes
// each, and writes 4 columns of 4 values: of eight threads in a row two have neighbouring columns
// and four other rows, so they write to eight different units of a line.
template <int N>
__device__ __forceinline__ void
gather_k_major(unsigned char* shared, const unsigned char* b, long long pitch, const int* index,
               int left, int column, int width)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, four = lane / 2 % 4,
              across = 4 * (lane % 2 + lane / 8 * 2);
    float4 x[N / 64][4];
#pragma unroll
    for (int i = 0; i < N / 64; ++i) {
        const int piece = warp + 4 * i, unit = 4 * (piece / (N / 32)) + four,
                  right = column + piece % (N / 32) * 32 + across;
        int4 row = {-1, -1, -1, -1};
        if (4 * unit < left && right < width)
            row = __ldg(reinterpret_cast<const int4*>(index) + unit);
        const int rows[4] = {row.x, row.y, row.z, row.w};
#pragma unroll
        for (int r = 0; r < 4; ++r) {
            x[i][r] = {0.f, 0.f, 0.f, 0.f};
            if (rows[r] >= 0)
                x[i][r] = __ldg(reinterpret_cast<const float4*>(b + rows[r] * pitch + 4ll * right));
        }
    }
#pragma unroll
    for (int i = 0; i < N / 64; ++i) {
        const int piece = warp + 4 * i, unit = 4 * (piece / (N / 32)) + four,
                  line = piece % (N / 32) * 32 + across;
        const auto put = [&](int j, float4 k) {
            *reinterpret_cast<float4*>(shared + 128 * (line + j) + 16 * (unit ^ (line + j) % 8)) =
                k;
        };
        put(0, {x[i][0].x, x[i][1].x, x[i][2].x, x[i][3].x});
        put(1, {x[i][0].y, x[i][1].y, x[i][2].y, x[i][3].y});
        put(2, {x[i][0].z, x[i][1].z, x[i][2].z, x[i][3].z});
        put(3, {x[i][0].w, x[i][1].w, x[i][2].w, x[i][3].w});
    }
}

// 16-bit types lie as they are: chunks of 64 columns, 64 rows of 128 bytes each. Eight threads copy
// a line.
template <int N>
__device__ __forceinline__ void
gather_mn_major(unsigned char* shared, const unsigned char* b, long long pitch, const int* index,
                int left, int column, int width)
{
    const int line = threadIdx.x / 8, unit = threadIdx.x % 8;
    float4 x[4][N / 64];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int row = 16 * i + line < left ? __ldg(index + 16 * i + line) : -1;
#pragma unroll
        for (int chunk = 0; chunk < N / 64; ++chunk) {
            const int right = column + 64 * chunk + 8 * unit;
            x[i][chunk] = {0.f, 0.f, 0.f, 0.f};
            if (row >= 0 && right < width)
                x[i][chunk] = __ldg(reinterpret_cast<const float4*>(b + row * pitch + 2ll * right));
        }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int chunk = 0; chunk < N / 64; ++chunk)
            *reinterpret_cast<float4*>(shared + 8192 * chunk + 128 * (16 * i + line) +
                                       16 * (unit ^ line % 8)) = x[i][chunk];
}

// Adds a warpgroup's tile to rows of float32 from `row` on, of which there are m.
template <int N>
__device__ __forceinline__ void
add_direct(const float (&acc)[1][N / 2], float* c, int width, int m, int row, int column)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int j = 0; j < N / 8; ++j)
#pragma unroll
        for (int down = 0; down < 2; ++down) {
            const int r = row + 16 * warp + 8 * down + lane / 4,
                      right = column + 8 * j + 2 * (lane % 4);
            if (r >= m || right >= width) continue;
            float* to = c + (size_t)r * width + right;
            atomicAdd(to, acc[0][4 * j + 2 * down]),
                atomicAdd(to + 1, acc[0][4 * j + 2 * down + 1]);
        }
}

template <Dtype T, int N>
__global__ void __launch_bounds__(128) wcsr(
    const __grid_constant__ TensorMap a,  // values: 64 x all columns of windows, boxes of 64 x K
    const int* __restrict__ col_idx,
    const int4* __restrict__ task,  // Wcsr; blockIdx.x, cut_windows.cuh
    const unsigned char* __restrict__ b,
    long long pitch,  // k rows, `pitch` bytes apart, whole units of 16
    void* __restrict__ c,
    float* __restrict__ sums,  // m rows; for 16-bit types the sums of cut windows
    int m, int width)          // elements of a row of B and of C
{
    static_assert(N % 64 == 0 && N <= 256, "a tile has 64, 128, 192 or 256 columns");
    extern __shared__ __align__(1024) unsigned char memory[];  // A, B
    __shared__ Barrier full;
    const int4 it = task[blockIdx.x];
    const int column = blockIdx.y * N;
    if (threadIdx.x == 0) {
        barrier_init(&full, 1);
        barrier_init_fence();
    }
    __syncthreads();
    float acc[1][N / 2] = {};
    unsigned parity = 0;
#pragma unroll 1
    for (int at = it.y; at < it.z; at += K<T>, parity ^= 1) {
        if (threadIdx.x == 0) {
            arrive_expect(&full, A_BYTES);
            tma_load(memory, a, at, 0, &full);
        }
        if constexpr (T == TF32)
            gather_k_major<N>(memory + A_BYTES, b, pitch, col_idx + at, it.z - at, column, width);
        else gather_mn_major<N>(memory + A_BYTES, b, pitch, col_idx + at, it.z - at, column, width);
        async_proxy_fence();
        __syncthreads();
        wait(&full, parity);
        multiply_step<T, T == TF32 ? K_MAJOR : MN_MAJOR, N>(acc, memory, memory + A_BYTES, true);
        wgmma_wait<0>();
        __syncthreads();  // both buffers may be written again
    }
    settle(acc);
    if (it.w < 0) store_direct<T, false, false, N>(acc, c, width, m, width, it.x * 64, column);
    else if constexpr (T == TF32)
        add_direct<N>(acc, static_cast<float*>(c), width, m, it.x * 64, column);
    else add_direct<N>(acc, sums, width, (it.w + 1) * 64, it.w * 64, column);
}
