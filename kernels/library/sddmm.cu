// sddmm: of a product of two dense matrices, the elements at a sparse matrix's places (sampled
// dense-dense product).
//
//     out[e] = sum over j of  G[row[e], j] * B[column[e], j]          e = 0 ... nnz - 1
//
// The gradient of C = A . B with respect to A's values, where G is C's. Where many places of a row
// lie close together, sddmm_panels.cu is faster. The idea: a place has as few lanes as its columns
// need in loads of 16 bytes, a team; the teams of a warp have places side by side, each UNROLL = 4
// that follow each other:
//
//   n = 32, float32: TEAM 8      lane   0 ... 7     8 ... 15    16 ... 23   24 ... 31
//                                place  0 1 2 3     4 5 6 7     8 9 10 11   12 13 14 15
//
// A team asks for all four rows of B at once, and for one row of G where they share it, as most do
// since places come row by row. Its lanes then add up four sums together: a lane gives half of them
// away and keeps the other half, so that the first two steps take three shuffles for four places,
// not eight, and the others one. In the end lanes hold different places.
//
// Sums are float32, always in the same order. A warp is done with its places at once: what hides
// latency are other warps, 48 of an SM with 2 KiB each on their way at n = 32 in float32.
//
// Expected on H100: B from L2, at 42 bytes a clock and SM, is what is waited for, in clocks of an
// SM a place; beside it, instructions of a warp a place, of which four go on in a clock:
//
//     n                 16     32     64    128    256
//     float32  B       1.5    3.0    6.1     12     24
//              of        3      7      9     19     37
//     16 bits  B       0.8    1.5    3.0    6.1     12
//              of        3      5     11     17     33
//
// Template:  T      FLOAT32, BF16 or F16: of G and B
//            O      likewise: of out
//            V      columns of a load, up to 16 bytes; divides n
//            LOADS  of a lane, PACE columns apart
//            TEAM   lanes: a power of 2
//            WIDE   whether a row is wider than TEAM * LOADS * V, and taken so much at a time
// Launch:    blocks of 32 * WARPS threads; ceil(nnz / (32 * WARPS / TEAM * UNROLL)) of them; row
//            and column begin at multiples of 16 bytes
#include "sampled.cuh"

constexpr int WARPS = 8, UNROLL = 4;
// That share an SM, by the bytes of a lane's loads of a row: registers.
template <int BYTES, bool WIDE>
constexpr int BLOCKS =
    WIDE         ? 2
    : BYTES > 16 ? 3
                 : 4;

template <Dtype T, Dtype O, int V, int LOADS, int TEAM, bool WIDE>
__global__ void __launch_bounds__(32 * WARPS, BLOCKS<LOADS * V * SIZE_OF<T>, WIDE>)
    sddmm(unsigned nnz, int n,
          const int* __restrict__ row,     // (nnz,)
          const int* __restrict__ column,  // (nnz,)
          const void* __restrict__ g,      // (rows of A, n) row-major
          const void* __restrict__ b,      // (columns of A, n) row-major
          void* __restrict__ out)          // (nnz,)
{
    constexpr int PACE = TEAM * V;                   // columns from a lane's load to its next
    constexpr unsigned PLACES = 32 / TEAM * UNROLL;  // of a warp
    const int lane = threadIdx.x % TEAM;
    const unsigned first = (blockIdx.x * WARPS + threadIdx.x / 32) * PLACES;
    const unsigned at = first + threadIdx.x % 32 / TEAM * UNROLL;  // the team's
    if (first >= nnz) return;
    int left[UNROLL], right[UNROLL];
    if (first + PLACES <= nnz) {
        const int4 rows = __ldg(reinterpret_cast<const int4*>(row + at));
        const int4 columns = __ldg(reinterpret_cast<const int4*>(column + at));
        left[0] = rows.x, left[1] = rows.y, left[2] = rows.z, left[3] = rows.w;
        right[0] = columns.x, right[1] = columns.y, right[2] = columns.z, right[3] = columns.w;
    } else {
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            left[u] = __ldg(row + min(at + u, nnz - 1));
            right[u] = __ldg(column + min(at + u, nnz - 1));
        }
        __syncwarp();  // else these loads stand in everybody's way, predicated
    }
    const bool alike =
        __all_sync(~0u, left[0] == left[1] && left[1] == left[2] && left[2] == left[3]);
    const unsigned pitch = n * SIZE_OF<T>;
    float sum[UNROLL] = {};
    for (int j = lane * V; j < n; j += PACE * LOADS) {
        const char* of_g = static_cast<const char*>(g) + (size_t)j * SIZE_OF<T>;
        const char* of_b = static_cast<const char*>(b) + (size_t)j * SIZE_OF<T>;
        Packed<T, V> y[UNROLL][LOADS];
        const auto there = [&](int t) { return t == 0 || j + t * PACE < n; };
        const auto load = [&](const char* of, int which, int t) {
            return Packed<T, V>::load(of + (size_t)(unsigned)which * pitch + t * PACE * SIZE_OF<T>);
        };
        const auto multiply = [&](int u, int t, const vec<V>& x) {
            const vec<V> z = floats(y[u][t]);
#pragma unroll
            for (int v = 0; v < V; ++v) sum[u] = fmaf(x.at[v], z.at[v], sum[u]);
        };
#pragma unroll
        for (int u = 0; u < UNROLL; ++u)
#pragma unroll
            for (int t = 0; t < LOADS; ++t)
                if (there(t)) y[u][t] = load(of_b, right[u], t);
        if (alike) {
            Packed<T, V> x[LOADS];
#pragma unroll
            for (int t = 0; t < LOADS; ++t)
                if (there(t)) x[t] = load(of_g, left[0], t);
#pragma unroll
            for (int t = 0; t < LOADS; ++t)
                if (there(t)) {
                    const vec<V> wide = floats(x[t]);
#pragma unroll
                    for (int u = 0; u < UNROLL; ++u) multiply(u, t, wide);
                }
        } else {
#pragma unroll
            for (int t = 0; t < LOADS; ++t)
#pragma unroll
                for (int u = 0; u < UNROLL; ++u)
                    if (there(t)) multiply(u, t, floats(load(of_g, left[u], t)));
        }
        if (!WIDE) break;
    }
    __syncwarp();
    add_up<TEAM>(sum, lane);
    if (lane % max(1, TEAM / UNROLL)) return;
#pragma unroll
    for (int i = 0; i < max(1, UNROLL / TEAM); ++i) {
        const unsigned e = at + lane * UNROLL / TEAM + i;
        if (e < nnz)
            Packed<O, 1>::store(static_cast<char*>(out) + (size_t)e * SIZE_OF<O>, {{sum[i]}});
    }
}
