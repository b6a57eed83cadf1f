// sddmm_panels: as sddmm, for matrices whose rows have many places close to each other.
//
//     out[e] = sum over j of  G[row, j] * B[column[e], j]          at every place e
//
// The idea: sddmm fetches a row of B from L2 at every place, and an SM has about 24 bytes a clock
// of L2, but 128 of shared memory. So A's columns are cut into panels, as wide as shared memory has
// room for their rows of B, and its places into pieces: those that follow each other in a row and
// in one panel.
//
//              panel 0          panel 1
//   row 0   . 0 1 . . 2  |  . 3 . . . 4      pieces, by panels:  row 0, places 0 1 2
//   row 1   5 . 6 . . .  |  . . 7 8 . .                          row 1, places 5 6
//                                                                row 0, places 3 4   ...
//
// A block has as much of them as the others, copies the rows of B of their panel, and again where
// another panel begins. Its warps then take piece by piece: a row of G goes to registers, once a
// piece, and each team multiplies it by a row of shared memory. A team is at most 8 lanes, whose
// loads of 16 bytes are one of all banks, so whatever rows teams are at, none waits for another.
//
// Expected on H100, in clocks of an SM: shared memory, or instructions of a warp, four in a clock,
// a place; beside it a piece is 20 clocks and a row of G from L2. What sddmm waits for L2 a place
// stands last: with few places a piece it is faster. As measured, panels take 1.7 times as long
// beside it as these say.
//
//     n                    16     32     64    128    256
//     float32  place      0.5    1.0    2.0    4.0    8.0
//              piece       23     25     31     41     63
//              sddmm      2.7    5.3     11     21     43
//     16 bits  place      0.4    0.9    1.7    2.8    4.9
//              piece       21     23     25     31     41
//              sddmm      1.3    2.7    5.3     11     21
//
// Tensor cores would make every place of a tile, float32 as sums of several parts; from a tenth of
// them on that is faster in 16 bits. Sums here are float32, always in the same order.
//
// Template:  T      FLOAT32, BF16 or F16: of G and B
//            O      likewise: of out
//            TEAM   lanes: a power of 2, 8 at most
//            LOADS  of 16 bytes of a lane: TEAM * LOADS of them hold a row
// Launch:    a block of 32 * WARPS threads for each multiprocessor; wide rows of TEAM * LOADS * 16
//            bytes of shared memory; rows of G and B begin at multiples of 16 bytes
#include "sampled.cuh"

constexpr int UNROLL = 4;
// By the columns that a lane holds of G: registers.
template <int COLUMNS>
constexpr int WARPS =
    COLUMNS > 16  ? 12
    : COLUMNS > 8 ? 16
                  : 24;

template <Dtype T, Dtype O, int TEAM, int LOADS>
__global__ void __launch_bounds__(32 * WARPS<LOADS * 16 / SIZE_OF<T>>, 1)
    sddmm_panels(int n, int k,
                 int wide,                        // columns of a panel
                 const int* __restrict__ cut,     // (blocks + 1,) pieces before a block's
                 const int* __restrict__ first,   // (panels + 1,) pieces before a panel's
                 const int4* __restrict__ piece,  // row, first place, the one behind, panel
                 const int* __restrict__ column,  // (nnz,)
                 const void* __restrict__ g,      // (rows of A, n) row-major
                 const void* __restrict__ b,      // (k, n) row-major
                 void* __restrict__ out)          // (nnz,)
{
    constexpr int V = 16 / SIZE_OF<T>, UNITS = TEAM * LOADS, TEAMS = 32 / TEAM;
    constexpr int COUNT = WARPS<LOADS * V>;
    extern __shared__ __align__(16) char staged[];  // (wide, UNITS) of 16 bytes
    const int lane = threadIdx.x % TEAM, team = threadIdx.x % 32 / TEAM, warp = threadIdx.x / 32;
    const unsigned pitch = n * SIZE_OF<T>;
    const vec<4> none = {};
    const int last = __ldg(cut + blockIdx.x + 1);
    for (int from = __ldg(cut + blockIdx.x); from < last;) {
        const int panel = __ldg(piece + from).w, left = panel * wide;
        const int to = min(last, __ldg(first + panel + 1)), rows = min(wide, k - left);
        const char* of_b = static_cast<const char*>(b) + (size_t)left * pitch;
        __syncthreads();  // the panel before is not read any more
#pragma unroll 4
        for (unsigned i = threadIdx.x; i < rows * UNITS; i += 32 * COUNT) {
            const char* at = of_b + i / UNITS * pitch + i % UNITS * 16;
            const bool there = i % UNITS * V < (unsigned)n;
            *reinterpret_cast<vec<4>*>(staged + i * 16) =
                there ? load(reinterpret_cast<const vec<4>*>(at)) : none;
        }
        __syncthreads();
        for (int base = from + warp; base < to; base += 32 * COUNT) {  // a lane has one in COUNT
            const int mine = base + threadIdx.x % 32 * COUNT;
            const int4 its = __ldg(piece + min(mine, to - 1));
            const int pieces = min(32, (to - base + COUNT - 1) / COUNT);
            // What is needed next is asked for ahead: a row of G a piece, columns a step.
            Packed<T, V> next[LOADS];
            int which[UNROLL];
            const auto fetch_row = [&](int row) {
                const char* of_g = static_cast<const char*>(g) + (size_t)row * pitch;
#pragma unroll
                for (int t = 0; t < LOADS; ++t) {
                    const int unit = t * TEAM + lane;
                    next[t].at = none;
                    if (unit * V < n) next[t] = Packed<T, V>::load(of_g + unit * 16);
                }
            };
            const auto fetch_columns = [&](unsigned at, unsigned end) {
#pragma unroll
                for (int u = 0; u < UNROLL; ++u)
                    which[u] = __ldg(column + min(at + u * TEAMS + team, end - 1));
            };
            unsigned begin = __shfl_sync(~0u, its.y, 0), end = __shfl_sync(~0u, its.z, 0);
            fetch_row(__shfl_sync(~0u, its.x, 0));
            fetch_columns(begin, end);
            for (int p = 0; p < pieces; ++p) {
                vec<V> x[LOADS];
#pragma unroll
                for (int t = 0; t < LOADS; ++t) x[t] = floats(next[t]);
                const int after = min(p + 1, pieces - 1);
                const unsigned then = __shfl_sync(~0u, its.y, after);
                const unsigned until = __shfl_sync(~0u, its.z, after);
                fetch_row(__shfl_sync(~0u, its.x, after));
                for (unsigned at = begin; at < end; at += TEAMS * UNROLL) {
                    const char* y[UNROLL];
                    float sum[UNROLL] = {};
#pragma unroll
                    for (int u = 0; u < UNROLL; ++u)
                        y[u] = staged + ((which[u] - left) * UNITS + lane) * 16;
                    const bool more = at + TEAMS * UNROLL < end;
                    fetch_columns(more ? at + TEAMS * UNROLL : then, more ? end : until);
                    const auto multiply = [&](int u, int t) {
                        const Packed<T, V> raw = {load_shared(y[u] + t * TEAM * 16)};
                        const vec<V> z = floats(raw);
#pragma unroll
                        for (int v = 0; v < V; ++v) sum[u] = fmaf(x[t].at[v], z.at[v], sum[u]);
                    };
                    if (LOADS * V <= 8 || at + TEAMS * UNROLL <= end) {
#pragma unroll
                        for (int t = 0; t < LOADS; ++t)
#pragma unroll
                            for (int u = 0; u < UNROLL; ++u) multiply(u, t);
                    } else {
#pragma unroll
                        for (int u = 0; u < UNROLL; ++u)
                            if (at + u * TEAMS + team < end)  // else shared memory is not asked
#pragma unroll
                                for (int t = 0; t < LOADS; ++t) multiply(u, t);
                    }
                    __syncwarp();
                    add_up<TEAM>(sum, lane);
                    if (lane % max(1, TEAM / UNROLL) == 0)
#pragma unroll
                        for (int i = 0; i < max(1, UNROLL / TEAM); ++i) {
                            const unsigned e = at + (lane * UNROLL / TEAM + i) * TEAMS + team;
                            if (e < end)
                                Packed<O, 1>::store(
                                    static_cast<char*>(out) + (size_t)e * SIZE_OF<O>, {{sum[i]}});
                        }
                }
                begin = then, end = until;
            }
        }
        from = to;
    }
}
