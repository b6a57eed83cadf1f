// blocks_mma.cu: how a block's threads bring a step of A and B to shared memory, and a warp its
// part of C to global memory.
//
// Lines in shared memory are 4 chunks of 16 bytes, of which two share 128 bytes, or a multiple of
// 8. Chunks are permuted, so that ldmatrix finds the same chunk of eight lines in a row in eight
// different columns of 16 bytes.
#pragma once

#include "cp_async.cuh"
#include "mma.cuh"

using u16 = unsigned short;

constexpr int MMA_THREADS = 128, MMA_K = 32;  // of a block; of k in a step

// Byte offset of a chunk of a line. What is added to `line` in multiples of 8 * 128 bytes does not
// change the permutation.
template <int CHUNKS>
__device__ __forceinline__ unsigned chunk_of(int line, int chunk)
{
    static_assert(
        CHUNKS == 4 || CHUNKS % 8 == 0, "a line is half of 128 bytes, or a multiple of them");
    return (line * CHUNKS + (chunk ^ (CHUNKS == 4 ? line / 2 % 4 : line % 8))) * 16;
}

// Asks for steps of a row of blocks, one after another: BM x 32 of A, and 32 x BN of B as 32 rows,
// or as BN columns where it is column-major. Columns of blocks come 32 at a time, a lane has one,
// and are read when the 32 before them are begun.
template <int BM, int BN, int BLOCK_K, bool COLUMNS>
struct Steps {
    static constexpr int OF_BLOCK = BLOCK_K < MMA_K ? BLOCK_K : MMA_K;  // of k, in a step
    static constexpr int PIECES = MMA_K / OF_BLOCK;                     // blocks that share one
    static constexpr int B_CHUNKS = COLUMNS ? 4 : BN / 8, B_LINES = MMA_K / 8 * BN / B_CHUNKS;
    static constexpr int B = BM * MMA_K * 2,
                         BYTES = B + BN * MMA_K * 2;  // in a stage: where B begins; of all

    const int *col_idx, begin, end;  // the row's blocks
    const u16 *val, *b;
    const long long pitch;  // elements from line to line of B, a multiple of 8
    const int n0, n, k;
    unsigned step = 0;
    int near, far;  // the lane's columns of blocks: of these 32, of the next

    __device__ Steps(const int* col_idx, int begin, int end, const u16* val, const u16* b,
                     long long pitch, int n0, int n, int k)
        : col_idx(col_idx),
          begin(begin),
          end(end),
          val(val),
          b(b),
          pitch(pitch),
          n0(n0),
          n(n),
          k(k),
          near(column(0)),
          far(column(32))
    {
    }

    __device__ __forceinline__ int column(int from) const
    {
        const int at = from + threadIdx.x % 32;
        return at < end - begin ? __ldg(col_idx + begin + at) : 0;
    }
    __device__ __forceinline__ int count() const
    {
        return ((end - begin) * (BLOCK_K / 16) + MMA_K / 16 - 1) / (MMA_K / 16);
    }

    // What lies beyond the matrices, or beyond the last block, becomes zeros.
    __device__ __forceinline__ void next(unsigned stage)
    {
        const int thread = threadIdx.x,
                  first = step * MMA_K / BLOCK_K;  // the step's first block, from `begin` on
        const int within = step * MMA_K % BLOCK_K;
        if (step && first % 32 == 0 && within == 0) near = far, far = column(first + 32);
        int k0[PIECES];
#pragma unroll
        for (int p = 0; p < PIECES; ++p)
            k0[p] = __shfl_sync(~0u, near, (first + p) % 32) * BLOCK_K + within;
        const bool second = PIECES == 1 || begin + first + 1 < end;

        const int chunk = thread % 4, line = thread / 4, piece = PIECES == 1 ? 0 : chunk / 2;
        const u16* of_a = val + (size_t)(begin + first + piece) * BM * BLOCK_K + line * BLOCK_K +
                          within + chunk * 8 % OF_BLOCK;
#pragma unroll
        for (int down = 0; down < BM; down += MMA_THREADS / 4)
            cp_async_or_zeros<16, CG>(
                stage + chunk_of<4>(line, chunk) + down * 64, of_a + down * BLOCK_K,
                piece == 0 || second, BM >= MMA_THREADS / 4 || line < BM);
        stage += B;
        if constexpr (COLUMNS) {
            const int at = (PIECES > 1 && piece ? k0[PIECES - 1] : k0[0]) + chunk * 8 % OF_BLOCK;
            const bool inside = at < pitch && (piece == 0 || second);
            const u16* from = b + (n0 + line) * pitch + at;
#pragma unroll
            for (int down = 0; down < BN; down += MMA_THREADS / 4)
                cp_async_or_zeros<16, CG>(stage + chunk_of<4>(line, chunk) + down * 64,
                                          from + down * pitch, inside && n0 + line + down < n);
        } else {
            constexpr int ROWS = MMA_THREADS / B_CHUNKS;  // that all threads copy at a time
            const int row = thread / B_CHUNKS, right = thread % B_CHUNKS, column = n0 + right * 8;
            const unsigned to = stage + chunk_of<B_CHUNKS>(row, right);
#pragma unroll
            for (int down = 0; down < MMA_K; down += ROWS) {
                const int p = down / OF_BLOCK, at = k0[p] + row + down % OF_BLOCK;
                const bool inside = at < k && column < pitch && (p == 0 || second);
                cp_async_or_zeros<16, CG>(
                    (to ^ down % 8 * 16) + down * B_CHUNKS * 16, b + at * pitch + column, inside);
            }
        }
        ++step;
    }
};

// WM x WN accumulators of a warp, rounded once, to C: by way of `mine`, shared memory of its own,
// so that lines of C are written in wholes of 16 bytes where they lie at such, else an element a
// lane. COLUMNS: C is column-major, and lines are columns. c: where the warp's part begins; lines,
// elements: how many of it exist, and of each, which may be none.
template <Dtype T, int WM, int WN, bool COLUMNS>
struct Part {
    static constexpr int LINES = COLUMNS ? WN : WM, LENGTH = COLUMNS ? WM : WN,
                         LINE = 2 * LENGTH + 16;  // 16: no bank conflicts
    static constexpr int BYTES = LINES * LINE;

    static __device__ __forceinline__ void
    store(const float (&acc)[WM / 16][WN / 8][4], unsigned char* mine, u16* c, long long pitch,
          int lines, int elements)
    {
        const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
        for (int i = 0; i < WM / 8; ++i)
#pragma unroll
            for (int j = 0; j < WN / 8; ++j) {
                const unsigned two =
                    pack<T>(acc[i / 2][j][i % 2 * 2], acc[i / 2][j][i % 2 * 2 + 1]);
                const int line = 8 * (COLUMNS ? j : i) + g, at = 8 * (COLUMNS ? i : j) + 2 * t;
                *reinterpret_cast<unsigned*>(mine + line * LINE + 2 * at) =
                    COLUMNS ? transposed_8x8(two) : two;
            }
        __syncwarp();
        if (reinterpret_cast<size_t>(c) % 16 == 0 && pitch % 8 == 0) {
            constexpr int UNITS = LENGTH / 8;
            const int at = lane % UNITS * 8;
#pragma unroll 4
            for (int line = lane / UNITS; line < LINES; line += 32 / UNITS) {
                const uint4 x = *reinterpret_cast<const uint4*>(mine + line * LINE + 2 * at);
                if (line < lines && at < elements)
                    *reinterpret_cast<uint4*>(c + line * pitch + at) = x;
            }
        } else {
#pragma unroll 4
            for (int line = 0; line < LINES; ++line)
                for (int at = lane; at < LENGTH; at += 32)
                    if (line < lines && at < elements)
                        c[line * pitch + at] =
                            *reinterpret_cast<const u16*>(mine + line * LINE + 2 * at);
        }
    }
};
