// heads: a product of few non-zeros, which takes as long as its chain of trips to memory. CUDA
// cores, float32 sums, a B of few columns.
//
// Rows are multiplied as in subwarp.cu: LANES lanes hold the columns of a row of B, and a slot of
// so many lanes multiplies a quad, four entries of a row, at a time; a team of slots has a row.
// There the chain is row or task → columns and values → B, 0.7 us each from an L2 that holds
// nothing of them. Here slot i of the grid finds its first quad at place i of a table, beside the
// number of its row, so that the chain is head → B:
//
//   heads   row, next quad, past the last, slots │ 4 columns │ 4 values     of slot 0
//           …                                                              of slot 1
//   quads   4 columns │ 4 values                                           what rows have beyond
//
// B and quads come from DRAM meanwhile: all blocks together ask L2 for them, a line each thread,
// and each block for as many as the others, so that nobody's own loads wait behind those of all.
//
// Teams of a warp have as many slots. Long rows have all those of a block. Sums are added up in one
// order.
//
// Template:  T       FLOAT32, BF16 or F16: of B and C
//            V       columns of a load: 1, 2 or 4, of 16-bit types also 8; must divide n
//            LOADS   of a lane for a row of B
//            LANES   that hold a row's columns, or a panel's: a power of 2
//            WARPS   of a block
//            BLOCKS  share an SM
#include "packed.cuh"

constexpr int QUAD = 4, LINE = 128;  // entries; bytes that a prefetch brings

struct Quad {
    int column[QUAD];  // -1: none
    vec<QUAD> value;
};

__device__ __forceinline__ Quad quad_at(const int4* p)
{
    const int4 four = __ldg(p);
    return {{four.x, four.y, four.z, four.w}, load(reinterpret_cast<const vec<QUAD>*>(p + 1))};
}

// Asks L2 for so many bytes, in lines that the first `all` threads have in turn.
__device__ __forceinline__ void fetch(const void* from, long long bytes, int thread, int all)
{
    for (long long at = (long long)thread * LINE; at < bytes; at += (long long)all * LINE)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(static_cast<const char*>(from) + at));
}

template <Dtype T, int V, int LOADS, int LANES, int WARPS, int BLOCKS>
__global__ void __launch_bounds__(32 * WARPS, BLOCKS)
    heads(const int4* __restrict__ table, const int4* __restrict__ quads, long long quads_bytes,
          int ahead,  // blocks that fetch what is cold; 0: none
          const void* __restrict__ b, long long b_bytes, void* __restrict__ c, int width)
{
    constexpr int SIZE = T == FLOAT32 ? 4 : 2, PACE = LANES * V;  // from a lane's load to its next
    constexpr int ROOM = 32 / LANES;                              // slots of a warp
    static_assert(LANES * ROOM == 32, "slots share a warp");
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int4* const mine =
        table + (blockIdx.x * (WARPS * ROOM) + threadIdx.x / LANES) * (size_t)3;
    const int4 head = __ldg(mine);
    Quad quad = quad_at(mine + 1);
    if (blockIdx.x < ahead && blockIdx.y == 0) {
        const int thread = threadIdx.x * ahead + blockIdx.x, all = 32 * WARPS * ahead;
        fetch(b, b_bytes, thread, all);
        fetch(quads, quads_bytes, thread, all);
    }
    const int row = head.x, past = head.z, slots = head.w, together = min(slots, ROOM);
    const int right = blockIdx.y * (PACE * LOADS) + lane % LANES * V;
    const char* from[LOADS];  // beyond the row: anything, not stored
#pragma unroll
    for (int t = 0; t < LOADS; ++t)
        from[t] = static_cast<const char*>(b) + min(right + PACE * t, width - V) * SIZE;
    const size_t pitch = (size_t)width * SIZE;

    vec<V> acc[LOADS] = {};
    for (int next = head.y;; next += slots) {
        Packed<T, V> x[QUAD][LOADS];
        const vec<QUAD> w = quad.value;
#pragma unroll
        for (int u = 0; u < QUAD; ++u)
#pragma unroll
            for (int t = 0; t < LOADS; ++t)
                x[u][t] = quad.column[u] >= 0 ? Packed<T, V>::load(from[t] + quad.column[u] * pitch)
                                              : Packed<T, V>{};
        if (next < past) quad = quad_at(quads + 2 * (size_t)next);
#pragma unroll
        for (int u = 0; u < QUAD; ++u)
#pragma unroll
            for (int t = 0; t < LOADS; ++t) x[u][t].multiply(acc[t], w.at[u]);
        if (next >= past) break;
    }
    __syncwarp();
    for (int away = LANES * together / 2; away >= LANES; away /= 2)
#pragma unroll
        for (int t = 0; t < LOADS; ++t)
#pragma unroll
            for (int v = 0; v < V; ++v) acc[t].at[v] += __shfl_xor_sync(~0u, acc[t].at[v], away);
    if (slots > ROOM) {  // a row for the block
        __shared__ vec<V> of_warps[WARPS][LOADS][LANES];
        if (lane < LANES)
#pragma unroll
            for (int t = 0; t < LOADS; ++t) of_warps[warp][t][lane] = acc[t];
        __syncthreads();
        if (warp) return;
#pragma unroll
        for (int t = 0; t < LOADS; ++t)
            for (int w = 1; w < WARPS; ++w) fma(acc[t], 1.f, of_warps[w][t][lane % LANES]);
    }
    if (row < 0 || lane / LANES % together) return;
#pragma unroll
    for (int t = 0; t < LOADS; ++t)
        if (right + PACE * t < width)
            Packed<T, V>::store(
                static_cast<char*>(c) + (row * (size_t)width + right + PACE * t) * SIZE, acc[t]);
}
