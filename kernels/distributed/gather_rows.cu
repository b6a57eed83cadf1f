// gather_rows: the rows of B that others need, side by side, so that one message holds them.
//
//   B (own rows x words)        id  2  0  3            out
//   0 │ a a a a                                        c c c c     out[i] = B[id[i]]
//   1 │ b b b b                 one thread ──► 16      a a a a
//   2 │ c c c c                 bytes; neighbours      d d d d
//   3 │ d d d d                 read neighbours
//
// Template:  WORD  what a thread moves: uint4, uint2, unsigned or unsigned short; a row is a whole
//                  number of them

template <typename WORD>
__global__ void gather_rows(long long rows,                    // that are gathered
                            int words,                         // of a row
                            const long long* __restrict__ id,  // rows
                            const WORD* __restrict__ b,        // own rows x words
                            WORD* __restrict__ out)            // rows x words
{
    const long long total = rows * words, step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < total; i += step) {
        const long long row = i / words;
        out[i] = b[id[row] * words + (i - row * words)];
    }
}
